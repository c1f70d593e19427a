"""What operators of a model do because of the session: its kind, or its options."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.frontends.onnx.model import Converted
from ipujax.frontends.onnx.operators import ONNX

_DROPOUTS = ("Dropout-7", "Dropout-10")
_NORMALIZATIONS = ("BatchNormalization-", "ai.graphcore.BatchNormalization-")
_GROUPS = "ai.graphcore.GroupNormalization-1"
_SHAPED = "ai.graphcore.ShapedDropout-1"


def with_dropout(model: Converted) -> Converted:
    """The model with dropout that acts: up to opset 11 the session says whether it does."""
    return dc.replace(model, graph=_with_each(model.graph, _acting))


def with_strided_groups(model: Converted) -> Converted:
    """The model with group normalization over every n-th channel."""
    return dc.replace(model, graph=_with_each(model.graph, _strided))


def moved_statistics(model: Converted) -> dict[str, str]:
    """The moving means and variances of batch normalization, and what they become."""
    moved: dict[str, str] = {}
    for node in model.graph.nodes:
        if not node.operator.startswith(_NORMALIZATIONS) or len(node.results) < 3:
            continue
        for arg, result in zip(node.args[3:5], node.results[1:3], strict=True):
            if isinstance(arg, Ref) and arg.name in model.variables:
                moved[arg.name] = result
    return moved


def _with_each(graph: Graph, changed: Callable[[Node], Node]) -> Graph:
    """A graph with other nodes, those of graphs inside it, too."""
    inner = {name: _with_each(one, changed) for name, one in graph.graphs.items()}
    return dc.replace(graph, nodes=tuple(map(changed, graph.nodes)), graphs=inner)


def _strided(node: Node) -> Node:
    is_meant = node.operator == _GROUPS
    return dc.replace(node, kwargs={**node.kwargs, "strided": True}) if is_meant else node


def _acting(node: Node) -> Node:
    if node.operator == _SHAPED:
        return dc.replace(node, kwargs={**node.kwargs, "training": True})
    if node.operator not in _DROPOUTS:
        return node
    ratio = np.float32(node.kwargs.get("ratio", 0.5))
    args = (node.args[0], np.asarray(ratio), np.asarray(True))
    return dc.replace(node, operator=ONNX.resolve("Dropout", 12), args=args, kwargs={})
