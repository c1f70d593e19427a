"""Rewrites that turn PyTorch's contexts and hidden aliasing into explicit operators."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from ipujax.doors.torch.schema import (
    converts_dtype,
    is_autocast,
    is_without_gradient,
    returns_operand,
)


def make_contexts_explicit(program: ExportedProgram) -> None:
    """Replaces the effects of contexts and inactive dropouts by explicit operators.

    Dropout that drops nothing returns its operand, which PyTorch would take for a new tensor that
    may be written to. Results under `torch.no_grad()` are detached, and operands under
    `torch.autocast` are converted by operators, since decomposition removes the contexts.
    """
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for module in modules:
        for node in list(module.graph.nodes):
            if returns_operand(node):
                _replace_by_operand(program, node)
            elif is_without_gradient(node):
                _detach_results(node)
            elif is_autocast(node):
                _convert_float_operands(getattr(module, node.args[4].target).graph)


def _replace_by_operand(program: ExportedProgram, node: Any) -> None:
    operand = node.args[0]
    node.replace_all_uses_with(operand)
    program.graph_signature.replace_all_uses(node.name, operand.name)
    node.graph.erase_node(node)


def _detach_results(node: torch.fx.Node) -> None:
    for result in list(node.users):
        with node.graph.inserting_after(result):
            detached = node.graph.call_function(torch.ops.aten.detach.default, (result,))
        detached.meta = dict(result.meta)
        result.replace_all_uses_with(detached, lambda user, own=detached: user is not own)


def _convert_float_operands(graph: torch.fx.Graph) -> None:
    """Converts float operands to their result's dtype, as `torch.autocast` computes."""
    for node in list(graph.nodes):
        dtype = _float_dtype(node)
        if node.op != "call_function" or dtype is None or converts_dtype(node.target):
            continue
        for operand in node.all_input_nodes:
            if _float_dtype(operand) not in (None, dtype):
                node.replace_input_with(operand, _insert_conversion(node, operand, dtype))


def _float_dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val")
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.dtype if is_float else None


def _insert_conversion(
    reader: torch.fx.Node, operand: torch.fx.Node, dtype: torch.dtype
) -> torch.fx.Node:
    copy: Any = torch.ops.aten._to_copy.default
    with reader.graph.inserting_before(reader):
        converted = reader.graph.call_function(copy, (operand,), {"dtype": dtype})
    converted.meta = dict(reader.meta, val=operand.meta["val"].to(dtype))
    return converted
