"""Which variables a module's values have gradients with respect to, as PyTorch sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from ipujax.doors.graphs import Node
from ipujax.frontends.pytorch.capture import Captured

# What only takes the form of an operand, or its value as a constant.
_CONSTANTS = tuple(
    f"aten.{name}."
    for name in (
        "detach", "detach_copy", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like",
        "randn_like", "new_zeros", "new_ones", "new_empty", "new_empty_strided", "new_full",
    )
)  # fmt: skip


def trained_by(found: Captured, values: Iterable[str]) -> tuple[str, ...]:
    """The trainable variables that values depend on.

    PyTorch's optimizers leave the others alone, where a gradient of zero would let weight decay
    and momentum change them.

    Args:
      found: the module, traced.
      values: their names in its graph.
    """
    sources = found.graph.sources(values, _is_cut)
    return tuple(v for v in found.trainable if not sources.isdisjoint(found.names.get(v, ())))


def _is_cut(node: Node) -> bool:
    return node.operator.startswith(_CONSTANTS) or not any(map(_has_gradient, node.avals))


def _has_gradient(aval: Any) -> bool:
    """Whether a result, as far as PyTorch tells its dtype, is of a kind that has gradients."""
    if isinstance(aval, list | tuple):
        return any(map(_has_gradient, aval))
    return aval is None or jnp.issubdtype(aval.dtype, jnp.inexact)
