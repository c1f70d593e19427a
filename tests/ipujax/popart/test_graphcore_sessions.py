"""PopART's operators that depend on the session: its kind, its options, and its variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.errors import PopARTError

Array = np.ndarray[Any, Any]


def device() -> popart.DeviceInfo:
    return popart.DeviceManager().createCpuDevice()


def anchored(session: Any, **inputs: Array) -> dict[str, Array]:
    """What a step gives, on a session that has just been made."""
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors


def counting() -> tuple[popart.Builder, str, list[str]]:
    """A model with two counters beside its loss: of floating point, and of integers."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.l1loss([w], 0.1)
    counters: list[str] = []
    for dtype in (np.float32, np.int32):
        counter = builder.addInitializedInputTensor(np.zeros(1, dtype))
        one = builder.aiOnnx.constant(np.ones(1, dtype))
        counters.append(builder.aiOnnx.add([counter, one]))
        builder.aiGraphcore.copyvarupdate([counter, counters[-1]])
    return builder, loss, counters


@pytest.mark.parametrize("is_training", [False, True])
def test_variables_become_what_is_copied_to_them(is_training: bool) -> None:
    builder, loss, counters = counting()
    flow = popart.DataFlow(2, dict.fromkeys(counters, popart.AnchorReturnType("All")))
    given = builder.getModelProto(), flow
    session = (
        popart.TrainingSession(*given, loss, popart.ConstSGD(0.1), device())
        if is_training
        else popart.InferenceSession(*given, device())
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for step in range(2):
        session.run(popart.PyStepIO({}, anchors))
        for name in counters:
            assert anchors[name].ravel().tolist() == [2 * step + 1, 2 * step + 2]
    session.weightsToHost()
    weights = {builder.getInputTensorIds()[-1]: np.zeros(1, np.int32)}
    session.readWeights(popart.PyWeightsIO(weights))
    assert [v.tolist() for v in weights.values()] == [[4]]


def test_shaped_dropout_drops_rows_in_training_alone() -> None:
    builder = popart.Builder()
    x = 1 + np.arange(64 * 3, dtype=np.float32).reshape(64, 3)
    given = builder.addInputTensor(popart.TensorInfo(x), "x")
    kept = builder.aiGraphcore.shapeddropout([given], [64, 1], 0.25)
    loss = builder.aiGraphcore.identityloss([kept])
    names = kept, f"Gradient___{kept}", "Gradient___x"
    flow = popart.DataFlow(1, dict.fromkeys(names, popart.AnchorReturnType("All")))
    proto = builder.getModelProto()
    training = popart.TrainingSession(proto, flow, loss, popart.ConstSGD(0.1), device())
    training.prepareDevice()
    found = anchored(training, x=x)
    result, by_result, by_x = (found[name] for name in names)
    is_kept = result.any(1, keepdims=True)
    assert 32 < is_kept.sum() < 64
    np.testing.assert_allclose(result, np.where(is_kept, x / 0.75, 0), 1e-6)
    np.testing.assert_allclose(by_x, np.where(is_kept, by_result / 0.75, 0), 1e-6)
    assert not np.array_equal(anchored(training, x=x)[kept].any(1, keepdims=True), is_kept)
    inference = popart.InferenceSession(proto, popart.DataFlow(1, [kept]), device())
    inference.prepareDevice()
    np.testing.assert_array_equal(anchored(inference, x=x)[kept], x)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"shape": [4, 1], "ratio": 1.5}, r"ratio value 1.5 is not valid.*interval \[0,1\)$"),
        ({"shape": [4, 4]}, "^ShapedDropout: incompatible input tensor and dropout shape"),
    ],
)
def test_dropout_that_cannot_be_is_refused(attributes: Any, message: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 3])
    dropped = builder.aiGraphcore.shapeddropout([x], **attributes)
    with pytest.raises(PopARTError, match=message):
        builder.getTensorShape(dropped)


def test_dropout_of_everything_is_refused() -> None:
    builder = popart.Builder()
    (dropped,) = builder.aiOnnx.dropout([builder.addInputTensor("FLOAT", [4])], 1, ratio=1.0)
    with pytest.raises(PopARTError, match=r"use a value in the interval \[0,1\)$"):
        builder.getTensorShape(dropped)


def test_groups_are_of_consecutive_channels_unless_an_option_says_otherwise() -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 2)).astype(np.float32)
    found: list[Array] = []
    for order, strided in ((range(6), True), ((0, 2, 4, 1, 3, 5), False)):
        builder = popart.Builder()
        given = builder.addInputTensor(popart.TensorInfo(x), "x")
        ones, zeros = (builder.addInitializedInputTensor(np.full(6, v, np.float32)) for v in (1, 0))
        result, *_ = builder.aiGraphcore.groupnormalization([given, ones, zeros], 2)
        options = popart.SessionOptions()
        options.groupNormStridedChannelGrouping = strided
        flow = popart.DataFlow(1, {result: popart.AnchorReturnType("All")})
        session = popart.InferenceSession(
            builder.getModelProto(), flow, device(), userOptions=options
        )
        session.prepareDevice()
        found.append(anchored(session, x=np.ascontiguousarray(x[:, list(order)]))[result])
    np.testing.assert_allclose(found[0][:, [0, 2, 4, 1, 3, 5]], found[1], 1e-5, 1e-6)


def test_dropout_acts_in_graphs_that_are_called() -> None:
    builder = popart.Builder()
    x = np.ones((64, 4), np.float32)
    given = builder.addInputTensor(popart.TensorInfo(x), "x")
    inner = builder.createSubgraphBuilder()
    (dropped,) = inner.aiOnnx.dropout([inner.addUntypedInputTensor()], 1, 0.25)
    inner.addOutputTensor(inner.aiGraphcore.shapeddropout([dropped], [64, 1], 0.25))
    (kept,) = builder.aiGraphcore.call([given], 1, inner)
    loss = builder.aiGraphcore.identityloss([kept])
    flow = popart.DataFlow(1, [kept])
    training = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device()
    )
    training.prepareDevice()
    result = anchored(training, x=x)[kept]
    is_kept = result.any(1)
    assert 32 < is_kept.sum() < 64
    assert 0 < (result[is_kept] == 0).mean() < 0.5
    np.testing.assert_allclose(result[result > 0], 1 / 0.75**2, 1e-6)


def test_only_initializers_of_the_outermost_graph_are_copied_to() -> None:
    def refused(builder: popart.Builder, result: str) -> None:
        with pytest.raises(PopARTError, match="is no initializer of the outermost graph"):
            builder.getTensorShape(result)

    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    refused(builder, builder.aiGraphcore.copyvarupdate([x, x]))
    builder = popart.Builder()
    weight = builder.addInitializedInputTensor(np.ones(2, np.float32))
    inner = builder.createSubgraphBuilder()
    given = inner.addUntypedInputTensor()
    inner.addOutputTensor(inner.aiGraphcore.copyvarupdate([given, given]))
    refused(builder, builder.aiGraphcore.call([weight], 1, inner)[0])


def test_what_is_detached_has_no_gradient_and_does_not_decay() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    v, w = (builder.addInitializedInputTensor(np.ones((3, 3), np.float32), n) for n in "vw")
    hidden = builder.aiGraphcore.detach([builder.aiOnnx.matmul([x, v])])
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([hidden, w])], 1.0)

    def session(anchor: str) -> popart.TrainingSession:
        flow = popart.DataFlow(1, {anchor: popart.AnchorReturnType("All")})
        sgd = popart.ConstSGD(0.1, weight_decay=0.5)
        return popart.TrainingSession(builder.getModelProto(), flow, loss, sgd, device())

    trained = session(popart.reservedGradientPrefix() + w)
    trained.prepareDevice()
    anchored(trained, x=np.ones((2, 3), np.float32))
    weights = {name: np.empty((3, 3), np.float32) for name in (v, w)}
    trained.weightsToHost()
    trained.readWeights(popart.PyWeightsIO(weights))
    assert (weights[v] == 1).all()
    assert (weights[w] != 1).all()
    with pytest.raises(PopARTError, match=r"^Anchor tensor `Gradient___v' not in Ir"):
        session(popart.reservedGradientPrefix() + v)
