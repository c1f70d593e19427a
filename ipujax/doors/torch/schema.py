"""Queries of PyTorch's private operator schemas, all in one place."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch.jit._trace import TracedModule

_CONVERSIONS = ("aten.to.", "aten._to_copy.", "aten.type_as.", "aten.view.dtype", "aten.copy_.")
_DROPOUTS = tuple(
    f"aten.{name}."
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
)


def is_operator(target: object) -> TypeGuard[torch._ops.OpOverload]:
    """Returns whether a call's target is an overload of one of PyTorch's operators."""
    return isinstance(target, torch._ops.OpOverload)


def is_higher_order(target: object) -> bool:
    """Returns whether a call's target is a higher-order operator, which takes graphs."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def writes_arguments(target: object) -> bool:
    """Returns whether an operator writes to any of its arguments."""
    return is_operator(target) and target._schema.is_mutable


def writes_in_place(target: object) -> bool:
    """Returns whether an operator works in place on its first argument."""
    if not is_operator(target) or not target._schema.is_mutable:
        return False
    alias = target._schema.arguments[0].alias_info
    return alias is not None and alias.is_write


def may_return_view(target: Any) -> bool:
    """Returns whether an operator's result may share memory with its first argument."""
    if not is_operator(target):
        return False
    return any(value.alias_info is not None for value in target._schema.returns)


def returns_operand(node: torch.fx.Node) -> bool:
    """Returns whether an operator returns its first argument, unknown to its schema."""
    if not is_operator(node.target) or not str(node.target).startswith(_DROPOUTS):
        return False
    _, probability, train = (*node.args, *node.kwargs.values())
    return train is False or probability in (0, 0.0)


def is_context(node: torch.fx.Node) -> bool:
    """Returns whether a node computes a graph under a mode of gradients or of dtypes."""
    return str(node.target) == "wrap_with_set_grad_enabled" or is_autocast(node)


def is_without_gradient(node: torch.fx.Node) -> bool:
    """Returns whether a node computes a graph under `torch.no_grad()`."""
    return str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False


def is_autocast(node: torch.fx.Node) -> bool:
    """Returns whether a node computes a graph under `torch.autocast`."""
    return str(node.target) == "wrap_with_autocast"


def converts_dtype(target: object) -> bool:
    """Returns whether an operator converts its operand to another dtype."""
    return str(target).startswith(_CONVERSIONS)


def is_traced_script(module: torch.nn.Module) -> bool:
    """Returns whether `torch.jit.trace` has made a module."""
    return isinstance(module, TracedModule)
