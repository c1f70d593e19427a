"""Graphs of ONNX as graphs of nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import AttributeProto

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.frontends.checks import check

Resolve = Callable[[str, str], str]
"""Gives for a domain and an operator its name in the table."""

HIDDEN = "__"
"""What the names of attributes begin with that say where a node runs, not what it computes."""

_IN_PLACE = "consumed_inputs"
"""The attribute by which opsets before 6 say what may be computed in place."""


def graph_of(graph: onnx.GraphProto, resolve: Resolve, marks: Mapping[str, Any]) -> Graph:
    """A graph, with those inside it; its inputs are those of the graph and its initializers.

    Args:
      graph: as ONNX has it.
      resolve: names operators.
      marks: of all nodes, besides their own.
    """
    names = [*(i.name for i in graph.input), *(t.name for t in graph.initializer)]
    return _Reader(resolve, marks).graph(graph, tuple(dict.fromkeys(names)), set())


class _Reader:
    def __init__(self, resolve: Resolve, marks: Mapping[str, Any]) -> None:
        self._resolve, self._marks = resolve, marks

    def graph(self, graph: onnx.GraphProto, inputs: Sequence[str], around: Set[str]) -> Graph:
        if graph.sparse_initializer:
            names = ", ".join(repr(sparse.values.name) for sparse in graph.sparse_initializer)
            raise check.refuse(f"the initializer {names} is sparse", "export it as a dense one")
        graphs: dict[str, Graph] = {}
        known = {*around, *inputs}
        nodes: list[Node] = []
        for number, proto in enumerate(graph.node):
            nodes.append(self._node(proto, number, known, graphs))
            known.update(proto.output)
        outputs = tuple(Ref(output.name) for output in graph.output)
        return Graph(tuple(inputs), tuple(nodes), outputs, graphs)

    def _node(
        self,
        proto: onnx.NodeProto,
        number: int,
        known: Set[str],
        graphs: dict[str, Graph],
    ) -> Node:
        args = tuple(Ref(name) if name else None for name in proto.input)
        attributes = {a.name: a for a in proto.attribute}
        hidden = {n: value_of(a) for n, a in attributes.items() if n.startswith(HIDDEN)}
        kwargs: dict[str, Any] = {}
        inner = [a for a in attributes.values() if a.type == AttributeProto.GRAPH]
        captured = tuple(dict.fromkeys(name for a in inner for name in _free(a.g, known)))
        for name, attribute in attributes.items():
            if attribute.type == AttributeProto.GRAPH:
                kwargs[name] = f"{number}/{name}"
                graphs[kwargs[name]] = self._inner(attribute.g, captured, known)
            elif name not in hidden and name != _IN_PLACE:
                kwargs[name] = value_of(attribute)
        if captured:
            kwargs["captured"] = tuple(map(Ref, captured))
        return Node(
            self._resolve(proto.domain, proto.op_type),
            args,
            kwargs,
            tuple(proto.output),
            (None,) * len(proto.output),
            scope=scope_of(proto),
            where=f"node {proto.name!r}" if proto.name else None,
            marks={**self._marks, **hidden},
        )

    def _inner(self, graph: onnx.GraphProto, captured: Sequence[str], known: Set[str]) -> Graph:
        constants = {t.name for t in graph.initializer}
        inputs = tuple(i.name for i in graph.input if i.name not in constants)
        inner = self.graph(graph, (*inputs, *captured), known | constants)
        values = [
            Node("Constant-1", (), {"value": to_array(t)}, (t.name,), (None,))
            for t in graph.initializer
        ]
        return Graph(inner.inputs, (*values, *inner.nodes), inner.outputs, inner.graphs)


def _free(graph: onnx.GraphProto, known: Set[str]) -> list[str]:
    """The names that a graph takes from those around it."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    found: list[str] = []
    for node in graph.node:
        inner = [
            n for a in node.attribute if a.type == AttributeProto.GRAPH for n in _free(a.g, known)
        ]
        found += [name for name in (*node.input, *inner) if name in known - own]
        own |= set(node.output)
    return found + [o.name for o in graph.output if o.name in known - own]


def scope_of(node: onnx.NodeProto) -> str:
    """The scope of a node: `/encoder/layer.0/MatMul` is in `encoder/layer.0`.

    PyTorch writes the modules that a node is in beside it, each with the path of those around it.
    """
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            modules = [name for name in _texts(entry.value)[:-1] if name]
            return modules[-1].replace(".", "/") if modules else ""
    return node.name.strip("/").rpartition("/")[0]


def _texts(written: str) -> list[str]:
    """A list of texts that was written as Python writes it; of anything else, none."""
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    is_list = isinstance(found, list) and all(isinstance(text, str) for text in found)
    return found if is_list else []


def value_of(attribute: onnx.AttributeProto) -> Any:
    """An attribute's value: numbers, text, lists of them, NumPy arrays."""
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
            return to_array(attribute.t)
        case _:
            kind = AttributeProto.AttributeType.Name(attribute.type)
            raise check.refuse(
                f"the attribute {attribute.name!r} holds {kind}", "leave out what needs it"
            )


def to_array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """The values of a tensor.

    Raises:
      FrontendError: (a `ValueError`) strings, or values that do not fit the shape.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise check.refuse(
            f"the tensor {tensor.name!r} holds strings", "compute with numbers in their place"
        )
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise check.refuse(
            f"the tensor {tensor.name!r} cannot be read: {error}", "export the model again"
        ) from error
