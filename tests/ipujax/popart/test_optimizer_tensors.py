"""What scripts see of an optimizer: numbers that are anchored, and tensors in a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

from ipujax import popart
from ipujax.errors import PopARTError


def session(
    optimizer: popart.Optimizer,
    anchors: list[str] | None = None,
    batches: int = 2,
    **given: Any,
) -> popart.TrainingSession:
    """Trains the weight `w`, of ones, with the gradient `x`."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]), "x")
    w = builder.addInitializedInputTensor(np.ones((2, 3), np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    options = popart.SessionOptions()
    for name, value in given.items():
        setattr(options, name, value)
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(batches, anchors or []),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
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


def test_weights_are_anchored_as_a_batch_leaves_them() -> None:
    updated = popart.reservedUpdatedVarPrefix() + "w"
    made = session(popart.ConstSGD(0.5), ["w", updated])
    anchors = made.initAnchorArrays()
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    made.run(popart.PyStepIO({"x": x}, anchors))
    expected = 1 - 0.5 * np.cumsum(x, 0)
    np.testing.assert_allclose(anchors["w"], expected)
    np.testing.assert_allclose(anchors[updated], expected)


@pytest.mark.parametrize("strategy", popart.MeanReductionStrategy)
@pytest.mark.parametrize("kind", [popart.ReductionType.Sum, popart.ReductionType.Mean])
def test_what_accumulates_is_anchored(
    kind: popart.ReductionType, strategy: popart.MeanReductionStrategy
) -> None:
    total = popart.reservedAccumPrefix() + "w"
    made = session(
        popart.ConstSGD(0.5),
        ["w", total],
        enableGradientAccumulation=True,
        accumulationFactor=3,
        accumulationAndReplicationReductionType=kind,
        meanAccumulationAndReplicationReductionStrategy=strategy,
    )
    anchors = made.initAnchorArrays()
    x = np.arange(36, dtype=np.float32).reshape(2, 3, 2, 3)
    made.run(popart.PyStepIO({"x": x}, anchors))
    is_mean = kind is popart.ReductionType.Mean
    sums = np.cumsum(x, 1)
    counts = np.arange(1, 4).reshape(3, 1, 1)
    is_running = is_mean and strategy is popart.MeanReductionStrategy.Running
    np.testing.assert_allclose(anchors[total], sums / counts if is_running else sums, rtol=1e-6)
    first = np.ones((2, 3)) - 0.5 * sums[0, -1] / (3 if is_mean else 1)
    expected = [[np.ones((2, 3))] * 3, [first] * 3]  # the update comes after them
    np.testing.assert_allclose(anchors["w"], expected, rtol=1e-6)


def test_sums_that_there_are_not() -> None:
    with pytest.raises(PopARTError, match="without gradient accumulation"):
        session(popart.ConstSGD(0.5), ["Accum___w"])
    with pytest.raises(PopARTError, match="not trained"):
        session(popart.ConstSGD(0.5), ["UpdatedVar___x"])
