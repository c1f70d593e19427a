"""A model of PopART's own operators, built by hand and trained on two IPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="PopART needs the extra `onnx`")

import onnx

from ipujax import popart


@pytest.mark.parametrize("reduction", [popart.ReductionType.Sum, popart.ReductionType.Mean])
def test_a_layer_with_an_l1_loss_trains_and_is_saved(
    reduction: popart.ReductionType, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(8, 2)).astype(np.float32)
    data = draw.normal(size=(5, 4, 8)).astype(np.float32)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]))
    w = builder.addInitializedInputTensor(weights)
    y = builder.aiOnnx.matmul([x, w])
    builder.virtualGraph(y, 0)
    loss = builder.aiGraphcore.l1loss([y], 0.1, reduction=reduction)
    builder.virtualGraph(loss, 1)
    builder.addOutputTensor(loss)
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(5, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.SGD({"defaultLearningRate": (0.1, False)}),
        userOptions=options,
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    session.weightsToHost()
    session.modelToHost(str(tmp_path / "trained.onnx"))

    share = 0.1 if reduction is popart.ReductionType.Sum else 0.1 / 8
    for number, batch in enumerate(data):
        values = batch @ weights
        assert anchors[loss][number] == pytest.approx(share * np.abs(values).sum(), rel=1e-5)
        weights = weights - 0.1 * share * batch.T @ np.sign(values)
    (saved,) = onnx.load(tmp_path / "trained.onnx").graph.initializer
    np.testing.assert_allclose(onnx.numpy_helper.to_array(saved), weights, rtol=1e-5, atol=1e-6)


def test_own_operators_run_in_a_session() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4, 3]))
    own = builder.aiGraphcore
    scale, bias = (builder.addInitializedInputTensor(np.full(4, v, "f")) for v in (1.0, 0.0))
    normal, _, _ = own.groupnormalization([x, scale, bias], 2)
    values, _ = own.sort([x], axis=1)
    edges = builder.aiOnnx.constant(np.array([-0.5, 0.5], np.float32))
    results = {
        own.scale([x], 0.5): lambda a: 0.5 * a,
        own.scaledadd([x, x], 2.0, -0.5): lambda a: 1.5 * a,
        own.reshape([x], [6, 4]): lambda a: a.reshape(6, 4),
        own.reshape(x, [3, 8]): lambda a: a.reshape(3, 8),
        own.reverse([x], [2]): lambda a: a[:, :, ::-1],
        own.expm1([x]): np.expm1,
        own.bucketize([x, edges]): lambda a: np.searchsorted([-0.5, 0.5], a),
        values: lambda a: np.sort(a, 1),
        normal: lambda a: (
            ((g := a.reshape(2, 2, 6)) - g.mean(2, keepdims=True)).reshape(a.shape)
            / np.repeat(g.std(2), 2, 1)[..., None]
        ),
    }
    for name in results:
        builder.addOutputTensor(name)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, list(results)),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    session.run(popart.PyStepIO({x: data}, anchors))
    for name, function in results.items():
        np.testing.assert_allclose(anchors[name], function(data), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("anchor", "trains", "message"),
    [("x", False, "does not train"), ("edges", True, "constant"), ("labels", True, "constant")],
)
def test_gradients_that_there_are_not_are_refused(anchor: str, trains: bool, message: str) -> None:
    builder = popart.Builder()
    own = builder.aiGraphcore
    names = {
        "x": builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3])),
        "labels": builder.addInputTensor(popart.TensorInfo("INT32", [2])),
        "edges": builder.aiOnnx.constant(np.ones(3, np.float32)),
    }
    scaled = builder.aiOnnx.mul([names["x"], names["edges"]])
    loss = own.nllloss([scaled, names["labels"]])
    builder.addOutputTensor(loss)
    flow = popart.DataFlow(1, [popart.reservedGradientPrefix() + names[anchor]])
    device = popart.DeviceManager().createCpuDevice()
    model, more = builder.getModelProto(), (loss, popart.ConstSGD(0.1)) if trains else ()
    kind = popart.TrainingSession if trains else popart.InferenceSession
    with pytest.raises(popart.popart_exception, match=message):
        kind(model, flow, *more, device)
