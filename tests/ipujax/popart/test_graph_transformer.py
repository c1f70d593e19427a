"""Models whose types or initializers are changed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
import onnx.numpy_helper

from ipujax import popart
from ipujax.errors import PopARTError


def model() -> tuple[bytes, str, str]:
    """A sum of an input and a weight, reshaped; with the names of the weight and of the shape."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    weight = builder.addInitializedInputTensor(np.full((2, 3), 0.5, np.float32), "w")
    shape = builder.addInitializedInputTensor(np.array([3, 2]), "shape")
    body = builder.aiOnnx.add([x, weight])
    scale = builder.aiOnnx.constant(np.array(2, np.float32))
    builder.addOutputTensor(builder.aiOnnx.reshape([builder.aiOnnx.mul([body, scale]), shape]))
    return builder.getModelProto(), weight, shape


def test_floats_become_halfs() -> None:
    transformer = popart.GraphTransformer(model()[0])
    transformer.convertFloatsToHalfs()
    builder = popart.Builder(transformer.getModelProto())
    (output,) = builder.getOutputTensorIds()
    assert builder.getTensorDtypeString("x") == "float16"
    assert builder.getTensorDtypeString(output) == "float16"
    proto = onnx.load_from_string(transformer.getModelProto())
    values = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    np.testing.assert_array_equal(values["w"], np.full((2, 3), 0.5, np.float16))
    assert values["shape"].dtype == np.int64


def test_initializers_become_constants() -> None:
    proto, weight, shape = model()
    transformer = popart.GraphTransformer(proto)
    transformer.convertAllFixedPointInitializersToConstants()
    builder = popart.Builder(transformer.getModelProto())
    assert builder.getInputTensorIds() == ["x", weight]
    assert shape in builder.getValueTensorIds()
    assert builder.getTensorShape(builder.getOutputTensorIds()[0]) == [3, 2]
    with pytest.raises(PopARTError, match="TensorId unknown not in the model"):
        transformer.convertInitializersToConstants(["unknown"])


def test_numbers_that_do_not_fit_are_clipped_if_one_says_so() -> None:
    builder = popart.Builder()
    builder.addInitializedInputTensor(np.array([2**40, -1]), "n")
    transformer = popart.GraphTransformer(builder.getModelProto())
    with pytest.raises(PopARTError, match="'n' has values that INT32 has not"):
        transformer.convertINT64ToINT32()
    transformer.convertINT64ToINT32(clip=True)
    (tensor,) = onnx.load_from_string(transformer.getModelProto()).graph.initializer
    assert onnx.numpy_helper.to_array(tensor).tolist() == [2**31 - 1, -1]


def test_inputs_without_use_are_left_out() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.addInputTensor("FLOAT", [2])
    builder.addOutputTensor(builder.aiOnnx.relu([x]))
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.removeUnusedInputs()
    assert popart.Builder(transformer.getModelProto()).getInputTensorIds() == [x]


def test_batch_normalization_is_prepared_for_training() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 3])
    ones = [builder.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(4)]
    builder.addOutputTensor(builder.aiOnnx.batchnormalization([x, *ones], 1)[0])
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.prepareNodesForTraining()
    (node,) = onnx.load_from_string(transformer.getModelProto()).graph.node
    assert len(set(node.output)) == 5
