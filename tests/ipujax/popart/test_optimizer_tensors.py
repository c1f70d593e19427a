"""What scripts see of an optimizer: numbers that are anchored, and tensors in a saved model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

from ipujax import popart
from ipujax.errors import PopARTError


def session(
    optimizer: popart.Optimizer, anchors: list[str] | None = None, batches: int = 2
) -> popart.TrainingSession:
    """Trains the weight `w`, of ones, with the gradient `x`."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]), "x")
    w = builder.addInitializedInputTensor(np.ones((2, 3), np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(batches, anchors or []),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    made.prepareDevice()
    made.weightsFromHost()
    return made


def test_hyperparameters_are_anchored_as_they_are_now() -> None:
    def sgd(rate: float) -> popart.SGD:
        return popart.SGD({"defaultLearningRate": (rate, False), "lossScaling": (4, False)})

    rate = popart.reservedDefaultScaledLearningRate0Prefix() + "FLOAT"
    scaling = popart.reservedLossScalingPrefix() + "FLOAT"
    made = session(sgd(0.5), [rate, scaling])
    anchors = made.initAnchorArrays()
    data = {"x": np.ones((2, 2, 3), np.float32)}
    for value in (0.5, 0.25):
        made.updateOptimizerFromHost(sgd(value))
        made.run(popart.PyStepIO(data, anchors))
        np.testing.assert_array_equal(anchors[rate], [value / 4] * 2)
        np.testing.assert_array_equal(anchors[scaling], [4, 4])
    with pytest.raises(PopARTError, match="weightDecayScaleFactor0"):
        session(popart.ConstSGD(0.1), ["weightDecayScaleFactor0___default___FLOAT"])


def test_numbers_of_a_saved_model_are_where_scripts_look(tmp_path: Path) -> None:
    made = session(popart.Adam({}), batches=1)
    x = np.full((2, 3), 0.5, np.float32)
    made.run(popart.PyStepIO({"x": x}, {}))
    made.modelToHost(tmp_path / "model.onnx")
    saved = {t.name: t for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert list(saved) == ["w", "Accl1___w", "Accl2___w", "Step___w"]
    assert saved["Step___w"].float_data == [1.0]
    np.testing.assert_allclose(saved["Accl1___w"].float_data, 0.1 * x.ravel(), rtol=1e-6)
    np.testing.assert_allclose(saved["Accl2___w"].float_data, 0.001 * x.ravel() ** 2, rtol=1e-6)
    np.testing.assert_allclose(saved["w"].float_data, [0.9] * 6, rtol=1e-5)
