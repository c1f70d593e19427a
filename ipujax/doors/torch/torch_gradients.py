"""Search for the variables that a module's outputs depend on with gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from ipujax.doors.graphs import Node
from ipujax.doors.torch.capture import ModuleTrace

# Operators that read only the shape or dtype of an operand, or its value as a constant.
_CONSTANTS = tuple(
    f"aten.{name}."
    for name in (
        "detach", "detach_copy", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like",
        "randn_like", "new_zeros", "new_ones", "new_empty", "new_empty_strided", "new_full",
    )
)  # fmt: skip


def find_trainable_sources(module_trace: ModuleTrace, values: Iterable[str]) -> tuple[str, ...]:
    """Returns the trainable variables that some values depend on.

    PyTorch's optimizers skip the others; with a gradient of zero, weight decay and momentum would
    change them.

    Args:
      module_trace: the traced module.
      values: the names of the values in its graph.
    """
    sources = module_trace.graph.find_source_inputs(values, _cuts_gradients)
    return tuple(
        v for v in module_trace.trainable if not sources.isdisjoint(module_trace.names.get(v, ()))
    )


def _cuts_gradients(node: Node) -> bool:
    return node.operator.startswith(_CONSTANTS) or not any(map(_can_have_gradient, node.avals))


def _can_have_gradient(aval: Any) -> bool:
    """Returns whether a result's dtype can have gradients; true for an unknown dtype."""
    if isinstance(aval, list | tuple):
        return any(map(_can_have_gradient, aval))
    return aval is None or jnp.issubdtype(aval.dtype, jnp.inexact)
