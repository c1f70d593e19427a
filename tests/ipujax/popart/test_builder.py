"""Builders: inputs, operators, inner graphs, attributes and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from onnx.reference import ReferenceEvaluator

from ipujax import popart
from ipujax.errors import PopARTError

Array = np.ndarray[Any, Any]


def result(builder: popart.Builder, output: str, inputs: dict[str, Array]) -> Array:
    """What a session gives for an output."""
    builder.addOutputTensor(output)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {output: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors[output]


def by_onnx(builder: popart.Builder, inputs: dict[str, Array]) -> Array:
    """What ONNX's own evaluator gives for the first output."""
    (value,) = ReferenceEvaluator(builder.getModelProto()).run(None, inputs)  # pyright: ignore
    return np.asarray(value)


def test_inputs_in_all_their_forms() -> None:
    builder = popart.Builder()
    info = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]), "a")
    named = builder.addInputTensor("INT32", [4], debugContext="b")
    array = builder.addInputTensor(np.zeros((5,), np.float16))
    weight = builder.addInitializedInputTensor(np.ones((2, 3), np.float32), "w")
    assert (info, named, weight) == ("a", "b", "w")
    assert builder.getInputTensorIds() == [info, named, array, weight]
    assert builder.getTensorShape(array) == [5]
    assert builder.getTensorDtypeString(named) == "int32"
    assert builder.getTrainableTensorIds() == [weight]
    assert builder.isInitializer(weight)
    assert not builder.isInitializer(info)


def test_a_model_says_what_onnx_says(tmp_path: Path) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 6])
    w = builder.addInitializedInputTensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    flat = builder.reshape_const(builder.aiOnnx, [x], [3, 4])
    product = builder.aiOnnx.matmul([flat, w])
    y = builder.aiOnnx.reducesum([product], axes=[1], keepdims=0)
    assert builder.getTensorShape(y) == [3]
    data = {x: np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)}
    np.testing.assert_allclose(result(builder, y, data), by_onnx(builder, data), rtol=1e-5)
    builder.saveModelProto(tmp_path / "model.onnx")
    again = popart.Builder(str(tmp_path / "model.onnx"))
    assert again.getOutputTensorIds() == [y]
    z = again.aiOnnx.neg([y])
    np.testing.assert_allclose(result(again, z, data), -by_onnx(builder, data), rtol=1e-5)


def test_branches() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    condition = builder.addInputTensor("BOOL", [])
    then, other = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    for inner in (then, other):
        inner.addInputTensorFromParentGraph(x)
    then.addOutputTensor(then.aiOnnx.neg([x]))
    other.addOutputTensor(other.aiOnnx.exp([x]))
    (y,) = builder.aiOnnx.logical_if([condition], 1, other, then)
    data = {x: np.array([1, 2], np.float32), condition: np.array(False)}
    np.testing.assert_allclose(result(builder, y, data), np.exp(data[x]), rtol=1e-5)
    with pytest.raises(PopARTError, match="no outer graph"):
        then.addInputTensorFromParentGraph("nothing")


def test_loops() -> None:
    builder = popart.Builder()
    a = builder.addInputTensor("FLOAT", [2])
    b = builder.addInputTensor("FLOAT", [2])
    count = builder.aiOnnx.constant(np.array(10, np.int64), "M")
    condition = builder.aiOnnx.constant(np.array(True), "cond")
    body = builder.createSubgraphBuilder()
    body.setGraphName("body")
    body.addInputTensor(popart.TensorInfo("INT64", []))
    going = body.addInputTensor(popart.TensorInfo("BOOL", []))
    carried = body.addUntypedInputTensor(a)
    body.addOutputTensor(going)
    body.addOutputTensor(body.aiOnnx.add([carried, b]))
    (y,) = builder.aiOnnx.loop([count, condition, a], 1, body)
    data = {a: np.array([3, 4], np.float32), b: np.array([6, -1], np.float32)}
    np.testing.assert_allclose(result(builder, y, data), data[a] + 10 * data[b], rtol=1e-5)


@pytest.mark.parametrize("turned", [0, 1])
def test_scans_join_what_their_steps_give(turned: int) -> None:
    """Unlike ONNX's: an axis that is left is kept if it is the only one, and results are joined."""
    builder = popart.Builder()
    state = builder.addInputTensor("FLOAT", [2])
    rows = builder.addInputTensor("FLOAT", [2, 3])
    numbers = builder.addInputTensor("FLOAT", [3])
    body = builder.createSubgraphBuilder()
    inside = [body.addUntypedInputTensor() for _ in range(3)]
    total = body.aiOnnx.add(inside[:2])
    body.addOutputTensor(total)
    body.addOutputTensor(body.aiOnnx.mul([total, inside[2]]))
    last, collected = builder.aiOnnx.scan(
        [state, rows, numbers],
        2,
        body,
        num_scan_inputs=2,
        scan_input_axes=[1],
        scan_input_directions=[0, turned],
        scan_output_directions=[turned],
    )
    assert builder.getTensorShape(last) == [2]
    rng = np.random.default_rng(0)
    data = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in ((state, 2), (rows, (2, 3)), (numbers, 3))
    }
    sums = data[state] + data[rows].cumsum(1).T
    expected = sums * data[numbers][:: 1 - 2 * turned, None]
    np.testing.assert_allclose(
        result(builder, collected, data), expected[:: 1 - 2 * turned].reshape(-1), rtol=1e-5
    )


def test_attributes_are_read_as_they_were_written() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    with builder.virtualGraph(1), builder.nameScope("layer"):
        y = builder.aiOnnx.matmul([x, x])
    assert builder.getVirtualGraph(y) == 1
    builder.addNodeAttribute("__sizes", [1, 2], {y})
    assert builder.getInt64VectorNodeAttribute("__sizes", y) == [1, 2]
    builder.removeNodeAttribute("__sizes", y)
    assert not builder.nodeHasAttribute("__sizes", y)
    builder.setPartialsType(y, "HALF")
    assert builder.getPartialsType(y) == "HALF"
    with pytest.raises(PopARTError, match="does not have"):
        builder.getInt64NodeAttribute("__sizes", y)


def test_operators_take_types_that_onnx_did_not_list() -> None:
    builder = popart.Builder()
    x, y = (builder.addInputTensor("FLOAT", [3]) for _ in range(2))
    data = {x: np.array([1, 2, 3], np.float32), y: np.array([1, 0, 3], np.float32)}
    equal = builder.aiOnnxOpset10.equal([x, y])  # of floating point since opset 11
    np.testing.assert_array_equal(result(builder, equal, data), [True, False, True])


def test_what_is_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    with pytest.raises(PopARTError, match=r"Abs has invalid number of inputs 0. Must be between"):
        builder.aiOnnx.abs([])
    with pytest.raises(PopARTError, match="Unknown tensor 'z'"):
        builder.aiOnnx.abs(["z"])
    with pytest.raises(PopARTError, match="is not an input or output tensor"):
        builder.getTensorShape("z")
    with pytest.raises(TypeError, match="incompatible function"):
        builder.aiOnnx.conv()
    with pytest.raises(PopARTError, match="untyped"):
        builder.addUntypedInputTensor()
    builder.aiOnnxOpset11.abs([x])
    assert builder.aiOnnxOpsetVersion == 11
    with pytest.raises(PopARTError, match="already defined as 11"):
        builder.aiOnnxOpset10.abs([x])
    product = builder.aiOnnxOpset11.matmul([x, x])
    with pytest.raises(PopARTError):
        builder.getTensorShape(product)


def test_calls_are_bound_as_the_original_bound_them() -> None:
    builder = popart.Builder(opsets={"ai.onnx": 6, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2, 6])
    builder.aiOnnx.add([x, x], 1, 0, "sum")  # version 6 had an axis
    with pytest.raises(TypeError, match=r"(?s)add\(\): incompatible.*axis: int"):
        builder.aiOnnx.add([x, x], "sum")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        builder.aiOnnx.elu(x)  # one name, in the place of a list
    with pytest.raises(PopARTError, match=r"Dropout has an invalid number of outputs 3.*1 and 2"):
        builder.aiOnnx.dropout([x], 3)
    assert str(builder.aiOnnx) == "AiOnnx6"
    assert builder.aiGraphcoreOpset1.version == 1


def test_attributes_take_what_converts_to_their_types() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 6])
    elu = builder.aiOnnx.elu([x], alpha=2)
    assert builder.getFloatNodeAttribute("alpha", {elu}) == 2.0
    default = builder.aiOnnx.elu([x])
    assert not builder.nodeHasAttribute("alpha", {default})
    softmax = builder.aiOnnx.softmax([x])  # integers are written, as the original wrote them
    assert builder.getInt64NodeAttribute("axis", {softmax}) == 1
    cast = builder.aiOnnx.cast([x], "INT32")
    assert builder.getTensorDtypeString(cast) == "int32"
    filled = builder.aiOnnx.constantofshape([builder.aiOnnx.constant(np.array([2, 3]))])
    assert builder.getTensorDtypeString(filled) == "float32"


def test_shapes_are_known_until_the_graph_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from ipujax.popart.builder import builder as module

    count, own = 0, module.convert_graph

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        return own(*args)

    monkeypatch.setattr(module, "convert_graph", counted)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 6, 3])
    y = builder.aiOnnx.softmax([x])
    assert builder.getTensorShape(y) == [2, 6, 3]
    builder.virtualGraph(y, 0)
    assert builder.getInt64NodeAttribute("axis", {y}) == 1
    assert builder.getTensorShape(y) == [2, 6, 3]
    assert count == 1
    z = builder.aiOnnx.transpose([x])
    assert builder.getTensorShape(z) == [3, 6, 2]
    builder.addNodeAttribute("perm", [1, 0, 2], {z})
    assert builder.getTensorShape(z) == [6, 2, 3]
    assert count == 3


def test_padding_that_is_computed_is_said_by_name() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 7, 7])
    pooled = builder.aiOnnx.averagepool([x], [3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    assert builder.getTensorShape(pooled) == [1, 1, 4, 4]


def test_successors_of_operators_that_onnx_gave_up() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 2, 2])
    scales = builder.aiOnnx.constant(np.array([1, 1, 2, 3], np.float32))
    data = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    found = result(builder, builder.aiOnnx.upsample([x, scales]), {x: data})
    np.testing.assert_array_equal(found, data.repeat(2, 2).repeat(3, 3))


def test_names_follow_scopes() -> None:
    builder = popart.Builder()
    with builder.nameScope("a"), builder.nameScope("b"):
        x = builder.addInputTensor("FLOAT", [2])
        w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
        y = builder.aiOnnx.add([x, w])
        z = builder.aiOnnx.add([x, w], "sum")
    assert (x, w, y, z) == ("a/b/input", "a/b/w", "a/b/Add:0", "a/b/sum:0")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"strides": [1]}, "Length of strides vector 1 != number of spatial dimensions 2"),
        ({"pads": [0, 0]}, r"Padding vector \(length 2\) does not have 2 values"),
        ({"dilations": [1]}, "Length of dilations vector 1 != number of spatial dimensions 2"),
        ({"kernel_shape": [4, 4]}, r"kernel_shape, \[4 4\], does not match .* 'w', \[3 3\]"),
        ({"dilations": [4, 4]}, r"invalid spatial output shape: \[-2 -2\]"),
    ],
)
def test_windows_are_checked_when_a_node_is_added(wrong: dict[str, Any], told: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 6, 6])
    w = builder.addInitializedInputTensor(np.ones((1, 1, 3, 3), np.float32), "w")
    assert builder.getTensorShape(builder.aiOnnx.conv([x, w])) == [1, 1, 4, 4]
    with pytest.raises(PopARTError, match=told):
        builder.aiOnnx.conv([x, w], **wrong)


def test_pools_and_paddings_are_checked_when_a_node_is_added() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 6, 6])
    with pytest.raises(PopARTError, match="Length of kernel vector 1"):
        builder.aiOnnx.averagepool([x], kernel_shape=[3])
    with pytest.raises(PopARTError, match=r"Padding vector \(length 4\) doesn't contain 2 entries"):
        builder.aiOnnx.pad([x], [1, 1, 1, 1])
    builder.aiOnnx.maxpool([builder.aiOnnx.relu([x])], 1, kernel_shape=[9, 9])  # seen later


def test_a_permutation_of_another_rank_is_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.aiOnnx.transpose([x], perm=[0])
    told = r"Rank of permutation tensor \[0\], rank 1 must be .* shape \[2 3\], rank 2\."
    with pytest.raises(PopARTError, match=told):
        builder.getTensorShape(y)
