"""PopART's operators that call graphs, or the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="PopART needs the extra `onnx`")

from ipujax import popart

A, B, C = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
GRADIENT = popart.reservedGradientPrefix()


def trained(
    builder: popart.Builder, loss: str, anchors: list[str], data: Mapping[str, Any]
) -> dict[str, Any]:
    """The anchors of one step."""
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, anchors),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(data), found))
    return found


def test_inputs_are_bound_by_position_and_other_tensors_by_their_names() -> None:
    builder = popart.Builder()
    info = popart.TensorInfo("FLOAT", [4, 4])
    a, b = builder.addInputTensor(info), builder.addInputTensor(info)
    c = builder.addInitializedInputTensor(C)
    inner = builder.createSubgraphBuilder()
    inner.addInputTensorFromParentGraph(a)
    x = inner.addUntypedInputTensor()
    product = inner.aiOnnx.matmul([a, x])
    inner.addOutputTensor(inner.aiOnnx.add([product, c]))
    (first,) = builder.aiGraphcore.call([a, b], 1, inner)
    (second,) = builder.aiGraphcore.call([b, first], 1, inner, "again")
    loss = builder.aiGraphcore.identityloss([second], popart.ReductionType.Sum)
    anchors = [second, GRADIENT + a, GRADIENT + b, GRADIENT + c]
    found = trained(builder, loss, anchors, {a: A, b: B})

    ones = np.ones((4, 4), np.float32)
    np.testing.assert_allclose(found[second], B @ (A @ B + C) + C, rtol=2e-5, atol=1e-5)
    by_first = B.T @ ones
    expected = {
        a: by_first @ B.T,
        b: ones @ (A @ B + C).T + A.T @ by_first,
        c: by_first + ones,
    }
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[GRADIENT + name], gradient, rtol=2e-5, atol=1e-5)


def test_branches_may_say_which_tensors_they_use() -> None:
    builder = popart.Builder()
    a = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 4]))
    condition = builder.addInputTensor(popart.TensorInfo("BOOL", []))
    branches: list[popart.Builder] = []
    for factor in (2.0, 3.0):
        branch = builder.createSubgraphBuilder()
        branch.addInputTensorFromParentGraph(a)
        branch.addOutputTensor(branch.aiGraphcore.scale([a], factor))
        branches.append(branch)
    then, other = branches
    (result,) = builder.aiOnnx.logical_if([condition], 1, other, then)
    loss = builder.aiGraphcore.identityloss([result], popart.ReductionType.Sum)
    for truth, factor in ((True, 2), (False, 3)):
        data = {a: A, condition: np.asarray(truth)}
        found = trained(builder, loss, [result, GRADIENT + a], data)
        np.testing.assert_allclose(found[result], factor * A)
        np.testing.assert_allclose(found[GRADIENT + a], np.full((4, 4), factor))


@pytest.mark.parametrize(("inputs", "outputs", "what"), [(2, 1, "input"), (1, 2, "output")])
def test_other_numbers_of_inputs_or_outputs_are_refused(
    inputs: int, outputs: int, what: str
) -> None:
    builder = popart.Builder()
    a = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    inner = builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.relu([inner.addUntypedInputTensor()]))
    with pytest.raises(popart.popart_exception, match=rf"'debug', number of {what}s \(2\)"):
        builder.aiGraphcore.call([a] * inputs, outputs, inner, "debug")


def test_prints_are_there_for_themselves_and_for_gradients(
    capfd: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    own = builder.aiGraphcore
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]), "x")
    y = own.scale([own.printtensor([x])], 2.0)
    own.printtensor([y], title="unread", separator=",", openBracket="<", closeBracket=">")
    inner = builder.createSubgraphBuilder()
    inner.aiGraphcore.printtensor([y], 0, "", "inside", floatFormat=2, digits=3)
    inner.addOutputTensor(inner.aiOnnx.identity([y]))
    (z,) = own.call([], 1, inner)
    loss = own.identityloss([own.printtensor([z], title="z", summariseThreshold=3, edgeItems=1)],
                            popart.ReductionType.Sum)  # fmt: skip
    data = np.array([[1, 2], [3, 40.5]], np.float32)
    trained(builder, loss, [loss, GRADIENT + x], {x: data})
    lines = capfd.readouterr().err.replace(",\n", ",").replace("\n ", " ").splitlines()
    printed = [line for line in lines if ": [" in line or ": <" in line]
    assert printed == [
        "x: [[ 1.000000  2.000000] [ 3.000000 40.500000]]",
        "unread: << 2.000000, 4.000000>, < 6.000000,81.000000>>",
        "inside: [[2.00e+00 4.00e+00] [6.00e+00 8.10e+01]]",
        "z: [[ 2.000000  4.000000] [ 6.000000 81.000000]]",
        "z_gradient: [[1.0000000 1.0000000] [1.0000000 1.0000000]]",
        "Gradient___x: [[2.0000000 2.0000000] [2.0000000 2.0000000]]",
    ]


@pytest.mark.parametrize(("given", "replicas"), [(True, 1), (True, 2), (False, 1)])
def test_a_model_aborts_if_its_condition_holds(given: bool, replicas: int) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("INT32", [1]))
    y = builder.aiOnnx.abs([x])
    builder.aiGraphcore.abort([y] if given else [])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas}),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.zeros((replicas, 1), np.int32)
    if given:
        session.run(popart.PyStepIO({x: data}, anchors))
    data[-1] = -1
    with pytest.raises(popart.poplar_runtime_error, match="Abort Program"):
        session.run(popart.PyStepIO({x: data}, anchors))


def pipelined(ipus: dict[str, int | None]) -> tuple[popart.InferenceSession, str, str]:
    """Two calls on two IPUs, whose graphs say the IPUs of some; its input and output."""
    builder = popart.Builder()
    x = y = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 4]))
    for ipu, (name, own) in enumerate(ipus.items()):
        inner = builder.createSubgraphBuilder()
        given = inner.addUntypedInputTensor()
        inner.addOutputTensor(inner.aiGraphcore.scale([given], ipu + 2.0, name))
        if own is not None:
            inner.virtualGraph(inner.getValueTensorIds()[0], own)
        (y,) = builder.aiGraphcore.call([y], 1, inner)
        builder.virtualGraph(y, ipu)
    options = popart.SessionOptions()
    options.enablePipelining = True
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow, model = popart.DataFlow(3, [y]), builder.getModelProto()
    return popart.InferenceSession(model, flow, device, userOptions=options), x, y


def test_calls_in_stages_that_virtual_graphs_say() -> None:
    session, x, y = pipelined({"first": 0, "second": 1})
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.stack([A, B, C])
    session.run(popart.PyStepIO({x: data}, anchors))
    np.testing.assert_allclose(anchors[y], 6 * data, rtol=1e-6)


@pytest.mark.parametrize(
    ("second", "message"),
    [(None, "does not have a virtual graph id"), (0, "does not match the virtual graph id")],
)
def test_graphs_in_a_pipeline_are_on_the_ipu_of_their_call(
    second: int | None, message: str
) -> None:
    with pytest.raises(popart.popart_exception, match=message):
        pipelined({"first": 0, "second": second})
