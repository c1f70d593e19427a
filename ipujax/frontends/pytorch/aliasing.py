"""Whether what a traced graph does in place can be told without views."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ipujax.frontends.pytorch.schema import gives_view, writes, writes_in_place


def mutates_views(module: torch.fx.GraphModule) -> bool:
    """Whether a tensor is written to that other tensors of the graph may share memory with.

    Operators that work in place on a tensor of its own give it another value, and that is all. The
    inputs of a graph inside another are tensors of that.
    """
    inner = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)][1:]
    return _mutates_views(module.graph) or any(_mutates_views(g, is_inner=True) for g in inner)


def _mutates_views(graph: torch.fx.Graph, is_inner: bool = False) -> bool:
    whole: dict[Any, Any] = {}  # of each node, the tensor whose memory it may share
    sharing: dict[Any, list[Any]] = {}  # of each such tensor, what may share its memory
    for node in graph.nodes:
        whole[node], sharing[node] = node, [node]
        operand = node.args[0] if node.args else None
        if _may_share_with(node, operand):
            whole[node] = whole[operand]
            sharing[whole[operand]].append(node)
        if not writes(node.target):
            continue
        if not writes_in_place(node.target) or not isinstance(operand, torch.fx.Node):
            return True
        if is_inner and whole[operand].op == "placeholder":
            return True
        same = _same(operand)
        others = [other for other in sharing[whole[operand]] if _same(other) is not same]
        if any(other.op == "placeholder" or _is_used_after(other, node) for other in others):
            return True
    return False


def _may_share_with(node: Any, operand: Any) -> bool:
    """Whether a node's tensor may be a view of its operand's, or one of the views that this is."""
    if not isinstance(operand, torch.fx.Node):
        return False
    return gives_view(operand.target if node.target is operator.getitem else node.target)


def _same(node: Any) -> Any:
    """The first name of a whole tensor that operators in place have given other names."""
    while writes_in_place(node.target):
        node = node.args[0]
    return node


def _is_used_after(node: Any, writer: Any) -> bool:
    return any(writer < user for user in node.users)
