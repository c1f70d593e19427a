"""Automatic loss scaling in sessions: the scale follows the gradients in FLOAT16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx

from ipujax import popart
from ipujax.errors import PopARTError

GREATEST = 65504.0
METHOD = popart.GradientTensorTrackingMethod


def model(dtype: Any = np.float16, marks: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """The sum of `(x @ w) @ v`; the attributes in `marks` say 0 and 1 of the two products."""
    builder = popart.Builder()
    kind = "FLOAT16" if dtype is np.float16 else "FLOAT"
    x = builder.addInputTensor(popart.TensorInfo(kind, [2, 2]), "x")
    w = builder.addInitializedInputTensor(np.eye(2, dtype=dtype), "w")
    v = builder.addInitializedInputTensor(np.eye(2, dtype=dtype), "v")
    y = builder.aiOnnx.matmul([x, w])
    z = builder.aiOnnx.matmul([y, v])
    loss = builder.aiGraphcore.identityloss([z], popart.ReductionType.Sum)
    for mark in marks:
        for stage, names in enumerate(([y], [z, loss])):
            for name in names:
                getattr(builder, mark)(name, stage)
    return builder.getModelProto(), loss


def session(
    made: tuple[bytes, str] | None = None,
    batches: int = 4,
    scaling: tuple[float, bool] = (256.0, False),
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> popart.TrainingSession:
    told = popart.SessionOptions()
    told.automaticLossScalingSettings.enabled = True
    for name, value in settings.items():
        setattr(told.automaticLossScalingSettings, name, value)
    for name, value in (options or {}).items():
        setattr(told, name, value)
    proto, loss = made or model()
    optimizer = popart.SGD({"defaultLearningRate": (1e-6, False), "lossScaling": scaling})
    flow = popart.DataFlow(batches, ["finalLossScale"])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    trains = popart.TrainingSession(proto, flow, loss, optimizer, device, userOptions=told)
    trains.prepareDevice()
    trains.weightsFromHost()
    return trains


def scales(trains: popart.TrainingSession, count: int, value: float = 1.0) -> list[float]:
    anchors = trains.initAnchorArrays()
    data = {"x": np.full((count, 2, 2), value, np.float16)}
    trains.run(popart.PyStepIO(data, anchors))
    return anchors["finalLossScale"].ravel().tolist()


def followed(first: float, count: int, largest: float, edge: float, period: int = 1) -> list[float]:
    """The scales, where the largest gradient is so many times the scale."""
    found = [first]
    for number in range(count - 1):
        is_high = min(found[-1] * largest, GREATEST) >= GREATEST * edge
        step = (0.5 if is_high else 2.0) if number % period == 0 else 1.0
        found.append(found[-1] * step)
    return found


@pytest.mark.parametrize(("period", "value"), [(1, 1.0), (1, 16.0), (3, 16.0)])
def test_the_scale_follows_the_gradients(period: int, value: float) -> None:
    trains = session(batches=10, updatePeriod=period)
    # The gradient of a weight is the scale times the sum of two elements of the input.
    expected = followed(256.0, 10, 2 * value, 0.125, period)
    assert scales(trains, 10, value) == expected


def test_the_loss_scaling_of_the_optimizer_comes_on_top() -> None:
    trains = session(batches=2)
    assert scales(trains, 2) == [256, 512]
    trains.updateOptimizerFromHost(
        popart.SGD({"defaultLearningRate": (2e-6, False), "lossScaling": (64.0, False)})
    )
    assert scales(trains, 2) == [256, 512]


def test_tensors_that_the_user_names_are_tracked_alone() -> None:
    by_user = METHOD.GradientsOfUserSpecifiedTensors
    for name, expected in (("v", [4096, 2048]), ("MatMul:0", [4096, 8192])):
        trains = session(
            batches=2,
            scaling=(4096.0, False),
            gradientTensorTrackingMethod=by_user,
            toTrackTensors=[name],
        )
        # The gradient of `v` is the scale times 4, that of `y` the scale.
        assert scales(trains, 2, 2.0) == expected


@pytest.mark.exhaustive
def test_accumulation_and_pipelines() -> None:
    accumulating = {"enableGradientAccumulation": True, "accumulationFactor": 2}
    assert scales(session(batches=3, options=accumulating), 6) == [256] * 2 + [512] * 2 + [1024] * 2
    staged = {
        "enableGradientAccumulation": True,
        "accumulationFactor": 3,
        "enablePipelining": True,
        "virtualGraphMode": popart.VirtualGraphMode.Manual,
    }
    for marks in (("virtualGraph", "pipelineStage"), ("virtualGraph",)):
        trains = session(model(marks=marks), 3, options=staged)
        assert scales(trains, 9) == [256] * 3 + [512] * 3 + [1024] * 3


def test_the_factor_is_saved_with_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    first = session(batches=3, updatePeriod=2)
    assert scales(first, 3) == [256, 512, 512]
    first.modelToHost(path)
    saved = {t.name: t for t in onnx.load(path).graph.initializer}
    assert saved["lossScaleUpdateFactor"].float_data == [4.0]
    again = session((path.read_bytes(), model()[1]), batches=3, updatePeriod=2)
    assert scales(again, 3) == [1024, 1024, 2048]


def test_weights_are_those_without_it() -> None:
    found: list[Any] = []
    for enabled in (True, False):
        trains = session(batches=3, enabled=enabled, scaling=(1.0, False))
        assert scales(trains, 3) == ([1, 2, 4] if enabled else [1, 1, 1])
        trains.weightsToHost()
        array = np.empty((2, 2), np.float16)
        trains.readWeights(popart.PyWeightsIO({"w": array}))
        found.append(array)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scaling": (2.0, True)}, "The optimizer must have non-const loss scaling"),
        ({"made": model(np.float32)}, "No tracked gradient tensors of type fp16 were found."),
        ({"binEdgeLocation": 1.5}, "[AutomaticLossScale transform] Out of range value for 'binE"),
        ({"thresholdUpperCountProportion": -1.0}, "Out of range value for 'thresholdUpper"),
        ({"toTrackTensors": ["w"]}, "gradientTensorTrackingMethod is AllNonView"),
        (
            {
                "made": model(marks=("virtualGraph", "pipelineStage")),
                "options": {
                    "enablePipelining": True,
                    "virtualGraphMode": popart.VirtualGraphMode.Manual,
                },
            },
            "'enableGradientAccumulation' SessionOption",
        ),
    ],
)
def test_what_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PopARTError) as raised:
        session(**given)
    assert message in raised.value.args[0]


def test_operators_that_may_have_several_results_are_counted_too() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [1, 1, 4]), "x")
    w = builder.addInitializedInputTensor(np.eye(4, dtype=np.float16), "w")
    (pooled,) = builder.aiOnnx.maxpool([builder.aiOnnx.matmul([x, w])], 1, kernel_shape=[2])
    positive = builder.aiOnnx.relu([pooled])
    loss = builder.aiGraphcore.identityloss([positive], popart.ReductionType.Sum)
    trains = session((builder.getModelProto(), loss), batches=1)
    anchors = trains.initAnchorArrays()
    trains.run(popart.PyStepIO({"x": np.ones((1, 1, 4), np.float16)}, anchors))
    assert anchors["finalLossScale"].ravel().tolist() == [256.0]
