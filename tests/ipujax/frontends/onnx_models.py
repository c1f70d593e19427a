"""Small ONNX models, made of nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Info = tuple[str, int, Sequence[Any]]
"""A value's name, type and shape."""

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    initializers: Mapping[str, Any] | None = None,
    name: str = "graph",
) -> onnx.GraphProto:
    values = [
        [helper.make_tensor_value_info(*info) for info in infos] for infos in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (initializers or {}).items()]
    return helper.make_graph(list(nodes), name, *values, tensors)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    initializers: Mapping[str, Any] | None = None,
    opset: int = 21,
    **more: Any,
) -> onnx.ModelProto:
    """A model of one graph; `more` is as `helper.make_model` takes it."""
    opsets = more.pop("opset_imports", [helper.make_opsetid("", opset)])
    made = graph(nodes, inputs, outputs, initializers)
    return helper.make_model(made, opset_imports=opsets, ir_version=10, **more)


def of_node(
    operator: str, *arrays: Any, opset: int, outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node, whose inputs are those of the model; None for one left out."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, results, **attributes)
    inputs = [
        (name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array))
        for name, array in zip(names, arrays, strict=True)
        if name
    ]
    bare = model([node], inputs, [], opset=opset)
    inferred = onnx.shape_inference.infer_shapes(bare, strict_mode=True).graph.value_info
    types = {info.name: info.type.tensor_type.elem_type for info in inferred}
    bare.graph.output.extend(
        helper.make_tensor_value_info(name, types.get(name, inputs[0][1]), ["unknown"])
        for name in results
    )
    return bare
