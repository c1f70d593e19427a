"""The graphs of a session as text, in the form of the original's intermediate representation."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import onnx
from onnx import AttributeProto

from ipujax.popart.recomputation import RECOMPUTE
from ipujax.popart.tensor_info import data_type_of

NAMELESS = "BuilderGraph_"
"""The name of a graph that nobody has named."""

Described = dict[str, Any]


def serialized(
    graph: onnx.GraphProto,
    results: Collection[str],
    avals: Mapping[str, jax.ShapeDtypeStruct],
    recomputed: Collection[str],
) -> str:
    """A model's graph, and those inside its nodes, as JSON: lists of nodes by the graphs' names.

    A node has `type`, `name`, `domain`, `inputs`, `outputs` and `attributes`; all else is texts.
    Its `recompute` is `YES` where the backward pass computes it again.

    Args:
      graph: the model's.
      results: of the nodes that run; the others are left out.
      avals: of all tensors of the model.
      recomputed: the results that are computed again.
    """
    name = "maingraph" if graph.name in ("", NAMELESS) else graph.name
    graphs: dict[str, list[Described]] = {name: []}
    for node in graph.node:
        if not any(result in results for result in node.output):
            continue
        again = "YES" if any(result in recomputed for result in node.output) else "NO"
        graphs[name].append(_described(node, avals, {"recompute": again}))
        _add_inner(graphs, node)
    return json.dumps(graphs)


def _add_inner(graphs: dict[str, list[Described]], node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        inner = attribute.g.node
        graphs[attribute.g.name] = [_described(one, {}, {}) for one in inner]
        for one in inner:
            _add_inner(graphs, one)


def _described(
    node: onnx.NodeProto, avals: Mapping[str, jax.ShapeDtypeStruct], more: Mapping[str, str]
) -> Described:
    attributes = {a.name: _text(a) for a in node.attribute if a.name != RECOMPUTE}
    return {
        "type": node.op_type,
        "name": node.name,
        "domain": node.domain or "ai.onnx",
        "inputs": _tensors(node.input, avals),
        "outputs": _tensors(node.output, avals),
        "attributes": {**attributes, **more},
    }


def _tensors(
    names: Sequence[str], avals: Mapping[str, jax.ShapeDtypeStruct]
) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for index, name in enumerate(names):
        if not name:
            continue
        tensor = {"name": name, "index": str(index)}
        if name in avals:
            aval = avals[name]
            tensor |= {"shape": str([*aval.shape]), "type": data_type_of(aval.dtype).name}
        found.append(tensor)
    return found


def _text(attribute: AttributeProto) -> str:
    if attribute.type == AttributeProto.GRAPH:
        return attribute.g.name
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
