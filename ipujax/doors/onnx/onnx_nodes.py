"""Conversion of ONNX protobuf graphs to graphs of nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import AttributeProto

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.doors.models import check

Resolve = Callable[[str, str], str]
"""A function that returns the table's name of an operator of a domain."""

HIDDEN = "__"
"""The prefix of attributes that say where a node runs, not what it computes."""

NODE_NAME = "__name"
"""The mark that holds a node's name."""
_IN_PLACE = "consumed_inputs"
"""The attribute by which opsets before 6 list the inputs that may be overwritten."""


def convert_graph_proto(
    graph: onnx.GraphProto, resolve: Resolve, marks: Mapping[str, object]
) -> Graph:
    """Converts an ONNX graph and its inner graphs; initializers become inputs.

    Args:
      graph: the ONNX protobuf.
      resolve: returns an operator's name in the table.
      marks: annotations added to those of every node.
    """
    names = [*(i.name for i in graph.input), *(t.name for t in graph.initializer)]
    return _GraphConverter(resolve, marks).convert_inner_graph(
        graph, tuple(dict.fromkeys(names)), set()
    )


class _GraphConverter:
    def __init__(self, resolve: Resolve, marks: Mapping[str, object]) -> None:
        self._resolve, self._marks = resolve, marks

    def convert_inner_graph(
        self, graph: onnx.GraphProto, inputs: Sequence[str], outer_names: Set[str]
    ) -> Graph:
        if graph.sparse_initializer:
            names = ", ".join(repr(sparse.values.name) for sparse in graph.sparse_initializer)
            raise check.value_error(
                f"the initializer {names} is sparse", "export it as a dense one"
            )
        graphs: dict[str, Graph] = {}
        visible_names = {*outer_names, *inputs}
        nodes: list[Node] = []
        for number, proto in enumerate(graph.node):
            nodes.append(self._convert_node(proto, number, visible_names, graphs))
            visible_names.update(proto.output)
        outputs = tuple(Ref(output.name) for output in graph.output)
        return Graph(tuple(inputs), tuple(nodes), outputs, graphs)

    def _convert_node(
        self,
        proto: onnx.NodeProto,
        number: int,
        visible_names: Set[str],
        graphs: dict[str, Graph],
    ) -> Node:
        args = tuple(Ref(name) if name else None for name in proto.input)
        attributes = {a.name: a for a in proto.attribute}
        placement_marks = {
            n: value_of_attribute(a) for n, a in attributes.items() if n.startswith(HIDDEN)
        }
        kwargs: dict[str, Any] = {}
        graph_attributes = [a for a in attributes.values() if a.type == AttributeProto.GRAPH]
        captured = tuple(
            dict.fromkeys(
                name for a in graph_attributes for name in _find_captured_names(a.g, visible_names)
            )
        )
        for name, attribute in attributes.items():
            if attribute.type == AttributeProto.GRAPH:
                kwargs[name] = f"{number}/{name}"
                graphs[kwargs[name]] = self._convert_attribute_graph(
                    attribute.g, captured, visible_names
                )
            elif name not in placement_marks and name != _IN_PLACE:
                kwargs[name] = value_of_attribute(attribute)
        if captured:
            kwargs["captured"] = tuple(map(Ref, captured))
        return Node(
            self._resolve(proto.domain, proto.op_type),
            args,
            kwargs,
            tuple(proto.output),
            (None,) * len(proto.output),
            scope=scope_of_node(proto),
            where=f"node {proto.name!r}" if proto.name else None,
            marks={NODE_NAME: proto.name, **self._marks, **placement_marks},
        )

    def _convert_attribute_graph(
        self, graph: onnx.GraphProto, captured: Sequence[str], visible_names: Set[str]
    ) -> Graph:
        constants = {t.name for t in graph.initializer}
        inputs = tuple(i.name for i in graph.input if i.name not in constants)
        converted_graph = self.convert_inner_graph(
            graph, (*inputs, *captured), visible_names | constants
        )
        values = [
            Node("Constant-1", (), {"value": tensor_to_numpy(t)}, (t.name,), (None,))
            for t in graph.initializer
        ]
        return Graph(
            converted_graph.inputs,
            (*values, *converted_graph.nodes),
            converted_graph.outputs,
            converted_graph.graphs,
        )


def _find_captured_names(graph: onnx.GraphProto, visible_names: Set[str]) -> list[str]:
    """Returns the names that a graph reads from the graphs that contain it."""
    local_names = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    captured: list[str] = []
    for node in graph.node:
        inner_captured = [
            n
            for a in node.attribute
            if a.type == AttributeProto.GRAPH
            for n in _find_captured_names(a.g, visible_names)
        ]
        captured += [
            name for name in (*node.input, *inner_captured) if name in visible_names - local_names
        ]
        local_names |= set(node.output)
    return captured + [o.name for o in graph.output if o.name in visible_names - local_names]


def scope_of_node(node: onnx.NodeProto) -> str:
    """Returns the scope of a node: `/encoder/layer.0/MatMul` is in `encoder/layer.0`.

    PyTorch's exporter lists the modules that contain a node in its metadata, by their full paths.
    """
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            modules = [name for name in _parse_text_list(entry.value)[:-1] if name]
            return modules[-1].replace(".", "/") if modules else ""
    return node.name.strip("/").rpartition("/")[0]


def _parse_text_list(literal: str) -> list[str]:
    """Parses a Python literal and returns it if it is a list of strings, else an empty list."""
    try:
        value = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return value if is_list else []


def value_of_attribute(attribute: onnx.AttributeProto) -> Any:
    """Returns an attribute's value: a number, a text, a list of these, or a NumPy array."""
    match attribute.type:
        case AttributeProto.FLOAT | AttributeProto.INT:
            return onnx.helper.get_attribute_value(attribute)
        case AttributeProto.STRING:
            return attribute.s.decode(errors="replace")
        case AttributeProto.STRINGS:
            return [text.decode(errors="replace") for text in attribute.strings]
        case AttributeProto.INTS | AttributeProto.FLOATS:
            return list(onnx.helper.get_attribute_value(attribute))
        case AttributeProto.TENSOR:
            return tensor_to_numpy(attribute.t)
        case _:
            type_name = AttributeProto.AttributeType.Name(attribute.type)
            raise check.value_error(
                f"the attribute {attribute.name!r} holds {type_name}", "export the model without it"
            )


def tensor_to_numpy(tensor: onnx.TensorProto) -> np.ndarray:
    """Returns the values of a tensor as a NumPy array.

    Raises:
      FrontendError: (a `ValueError`) the tensor holds strings, or its values do not fit its shape.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise check.value_error(
            f"the tensor {tensor.name!r} holds strings", "compute with numbers in their place"
        )
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise check.value_error(
            f"the tensor {tensor.name!r} cannot be read: {error}", "export the model again"
        ) from error
