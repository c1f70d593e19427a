"""The changes to a model's operators by the session: training, or its options."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from ipujax.doors.graphs import Node, Ref
from ipujax.doors.onnx import ONNX, ConvertedGraph

_DROPOUTS = ("Dropout-7", "Dropout-10")
_NORMALIZATIONS = ("BatchNormalization-", "ai.graphcore.BatchNormalization-")
_GROUPS = "ai.graphcore.GroupNormalization-1"
_SHAPED = "ai.graphcore.ShapedDropout-1"


def enable_dropout(model: ConvertedGraph) -> ConvertedGraph:
    """Returns the model with active dropout: up to opset 11 the session decides about it."""
    return dc.replace(model, graph=model.graph.map_nodes(_activate_dropout))


def use_strided_groups(model: ConvertedGraph) -> ConvertedGraph:
    """Returns the model with group normalization over every n-th channel."""
    return dc.replace(model, graph=model.graph.use_strided_groups((_GROUPS,)))


def find_moving_statistics(model: ConvertedGraph) -> dict[str, str]:
    """Finds the moving means and variances of batch normalization, and the results they become."""
    statistics: dict[str, str] = {}
    for node in model.graph.nodes:
        if not node.operator.startswith(_NORMALIZATIONS) or len(node.results) < 3:
            continue
        for arg, result in zip(node.args[3:5], node.results[1:3], strict=True):
            if isinstance(arg, Ref) and arg.name in model.variables:
                statistics[arg.name] = result
    return statistics


def _activate_dropout(node: Node) -> Node:
    if node.operator == _SHAPED:
        return dc.replace(node, kwargs={**node.kwargs, "training": True})
    if node.operator not in _DROPOUTS:
        return node
    ratio = np.float32(node.kwargs.get("ratio", 0.5))
    args = (node.args[0], np.asarray(ratio), np.asarray(True))
    return dc.replace(node, operator=ONNX.resolve_version("Dropout", 12), args=args, kwargs={})
