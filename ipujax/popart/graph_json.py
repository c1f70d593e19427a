"""The serialization of a session's graphs as JSON, in the form of PopART's representation."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import onnx
from onnx import AttributeProto

from ipujax.popart.popart_recomputation import RECOMPUTE
from ipujax.popart.tensor_info import to_data_type

NAMELESS = "BuilderGraph_"
"""The name of a graph without a name of the user's."""

NodeFields = dict[str, Any]


def serialize_graph(
    graph: onnx.GraphProto,
    results: Collection[str],
    avals: Mapping[str, jax.ShapeDtypeStruct],
    recomputed: Collection[str],
) -> str:
    """Serializes a graph, and those inside its nodes, as JSON: lists of nodes by graph name.

    A node has `type`, `name`, `domain`, `inputs`, `outputs` and `attributes`; all values are texts.
    Its attribute `recompute` is `YES` if the backward pass recomputes it.

    Args:
      graph: the graph of the model.
      results: the results of nodes that run; other nodes are left out.
      avals: the shapes and dtypes of all tensors of the model.
      recomputed: the results that are recomputed.
    """
    name = "maingraph" if graph.name in ("", NAMELESS) else graph.name
    graphs: dict[str, list[NodeFields]] = {name: []}
    for node in graph.node:
        if not any(result in results for result in node.output):
            continue
        recompute = "YES" if any(result in recomputed for result in node.output) else "NO"
        graphs[name].append(_describe_node_fields(node, avals, {"recompute": recompute}))
        _add_inner_graphs(graphs, node)
    return json.dumps(graphs)


def _add_inner_graphs(graphs: dict[str, list[NodeFields]], node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        inner_nodes = attribute.g.node
        graphs[attribute.g.name] = [
            _describe_node_fields(inner_node, {}, {}) for inner_node in inner_nodes
        ]
        for inner_node in inner_nodes:
            _add_inner_graphs(graphs, inner_node)


def _describe_node_fields(
    node: onnx.NodeProto,
    avals: Mapping[str, jax.ShapeDtypeStruct],
    extra_attributes: Mapping[str, str],
) -> NodeFields:
    attributes = {a.name: _attribute_text(a) for a in node.attribute if a.name != RECOMPUTE}
    return {
        "type": node.op_type,
        "name": node.name,
        "domain": node.domain or "ai.onnx",
        "inputs": _describe_tensors(node.input, avals),
        "outputs": _describe_tensors(node.output, avals),
        "attributes": {**attributes, **extra_attributes},
    }


def _describe_tensors(
    names: Sequence[str], avals: Mapping[str, jax.ShapeDtypeStruct]
) -> list[dict[str, str]]:
    tensors: list[dict[str, str]] = []
    for index, name in enumerate(names):
        if not name:
            continue
        tensor = {"name": name, "index": str(index)}
        if name in avals:
            aval = avals[name]
            tensor |= {"shape": str([*aval.shape]), "type": to_data_type(aval.dtype).name}
        tensors.append(tensor)
    return tensors


def _attribute_text(attribute: AttributeProto) -> str:
    if attribute.type == AttributeProto.GRAPH:
        return attribute.g.name
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
