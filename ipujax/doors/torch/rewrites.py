"""Rewrites that turn PyTorch's contexts and hidden aliasing into explicit operators."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.export import ExportedProgram

from ipujax.doors.torch.schema import (
    converts_dtype,
    is_autocast,
    is_context,
    is_without_gradient,
    returns_operand,
    writes_in_place,
)


def make_contexts_explicit(program: ExportedProgram) -> None:
    """Replaces the effects of contexts and inactive dropouts by explicit operators.

    Dropout that drops nothing returns its operand, which PyTorch would take for a new tensor that
    may be written to. Results under `torch.no_grad()` are detached, and operands under
    `torch.autocast` are converted by operators; what the contexts contain then stands in the graph
    around them, since decomposition removes contexts, and the marks of the nodes in them.
    """
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for module in reversed(modules):  # inner graphs first
        for node in list(module.graph.nodes):
            if returns_operand(node):
                _replace_by_operand(program, node)
            elif is_context(node):
                graph = getattr(module, str(_graph_operand(node).target)).graph
                if is_without_gradient(node):
                    _detach_results(node)
                    _detach_written_values(graph)
                elif is_autocast(node):
                    _convert_float_operands(graph)
                _inline_graph(program, module, node, graph)
        module.recompile()


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


def _detach_written_values(graph: torch.fx.Graph) -> None:
    """Detaches what operators in place write to tensors, which outlive the context."""
    for node in list(graph.nodes):
        if writes_in_place(node.target):
            for operand in {*node.args[1:], *node.kwargs.values()}:
                if isinstance(operand, torch.fx.Node):
                    with graph.inserting_before(node):
                        detached = graph.call_function(torch.ops.aten.detach.default, (operand,))
                    detached.meta = dict(operand.meta)
                    node.replace_input_with(operand, detached)


def _graph_operand(context: Any) -> torch.fx.Node:
    """Returns the operand of a context that is its graph; those that follow go into the graph."""
    return next(a for a in context.args if isinstance(a, torch.fx.Node) and a.op == "get_attr")


def _inline_graph(
    program: ExportedProgram, module: torch.fx.GraphModule, context: Any, graph: torch.fx.Graph
) -> None:
    """Replaces a context by the nodes of its graph."""
    graph_operand = _graph_operand(context)
    operands = iter(context.args[context.args.index(graph_operand) + 1 :])
    outer_nodes: dict[torch.fx.Node, Any] = {}
    results: Any = ()
    with module.graph.inserting_before(context):
        for node in graph.nodes:
            if node.op == "placeholder":
                outer_nodes[node] = next(operands)
            elif node.op == "output":
                results = node.args[0]
            else:
                outer_nodes[node] = module.graph.node_copy(node, outer_nodes.__getitem__)
                if node.op == "get_attr":
                    outer_nodes[node].target = _move_attribute(module, graph, str(node.target))
    for item in list(context.users):
        result = outer_nodes[results[item.args[1]]]
        item.replace_all_uses_with(result)
        if module is program.graph_module:
            program.graph_signature.replace_all_uses(item.name, result.name)
        module.graph.erase_node(item)
    module.graph.erase_node(context)
    if not graph_operand.users:
        module.graph.erase_node(graph_operand)


def _move_attribute(module: torch.fx.GraphModule, graph: torch.fx.Graph, name: str) -> str:
    """Gives a graph's attribute to the module around it; returns its name there."""
    value = getattr(graph.owning_module, name)
    new = next(n for n in (f"{name}_{i}" for i in itertools.count()) if not hasattr(module, n))
    setattr(module, new, value)
    return new


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
