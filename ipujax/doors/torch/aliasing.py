"""Detection of in-place writes to tensors that share memory with views."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ipujax.doors.torch.schema import may_return_view, writes_arguments, writes_in_place


def mutates_views(module: torch.fx.GraphModule) -> bool:
    """Returns whether a graph writes in place to a tensor that shares memory with others.

    An in-place operator on a tensor that shares no memory only gives its name another value. The
    inputs of an inner graph are tensors of the outer one.
    """
    inner_graphs = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)][1:]
    return _graph_mutates_views(module.graph) or any(
        _graph_mutates_views(g, is_inner=True) for g in inner_graphs
    )


def _graph_mutates_views(graph: torch.fx.Graph, is_inner: bool = False) -> bool:
    base_of: dict[Any, Any] = {}  # node -> the tensor whose memory it may share
    sharers_of: dict[Any, list[Any]] = {}  # base tensor -> the nodes that may share its memory
    for node in graph.nodes:
        base_of[node], sharers_of[node] = node, [node]
        operand = node.args[0] if node.args else None
        if _may_share_memory(node, operand):
            base_of[node] = base_of[operand]
            sharers_of[base_of[operand]].append(node)
        if not writes_arguments(node.target):
            continue
        if not writes_in_place(node.target) or not isinstance(operand, torch.fx.Node):
            return True
        if is_inner and base_of[operand].op == "placeholder":
            return True
        root = _first_name_of_tensor(operand)
        other_sharers = [
            sharer
            for sharer in sharers_of[base_of[operand]]
            if _first_name_of_tensor(sharer) is not root
        ]
        if any(other.op == "placeholder" or _is_read_after(other, node) for other in other_sharers):
            return True
    return False


def _may_share_memory(node: Any, operand: Any) -> bool:
    """Returns whether a node's tensor may be a view of its operand's tensor."""
    if not isinstance(operand, torch.fx.Node):
        return False
    return may_return_view(operand.target if node.target is operator.getitem else node.target)


def _first_name_of_tensor(node: Any) -> Any:
    """Returns the first node of a tensor that in-place operators have renamed."""
    while writes_in_place(node.target):
        node = node.args[0]
    return node


def _is_read_after(node: Any, writer: Any) -> bool:
    return any(writer < user for user in node.users)
