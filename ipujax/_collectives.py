"""What the operators of replication share: scopes, and arguments checked while tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import CollectiveError, ConfigTypeError
from lowering import collectives, jaxpr


def scope(name: str | None) -> contextlib.AbstractContextManager[Any]:
    """The named scope of an operator's optional name."""
    return jax.named_scope(name) if name else contextlib.nullcontext()


def refuse(what: str, fix: str) -> CollectiveError:
    """The error for an impossible value in the call that is being traced."""
    return CollectiveError(what, where=jaxpr.current_user_line(), fix=fix)


def refuse_type(what: str, fix: str) -> ConfigTypeError:
    """The error for an argument of the wrong type in the call that is being traced."""
    where = jaxpr.current_user_line()
    lines = [what, *([f"  where: {where}"] if where else []), f"  fix:   {fix}"]
    return ConfigTypeError("\n".join(lines))


def whole_number(value: Any, what: str) -> int:
    """`value` if it is an integer known while tracing; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise refuse_type(
            f"{what} is {value!r}, of type {type(value).__name__}",
            "give a Python int; it must be known when the function is traced",
        )
    return int(value)


def group_size(value: Any, what: str) -> int:
    """A number of replicas that can be a group's; whether it divides theirs is known later."""
    size = whole_number(value, what)
    if size < 1:
        raise refuse(f"{what} is {size}", "a group has at least one replica")
    return size


def as_array(x: Any, function: str) -> jax.Array:
    """The operand of a collective, as an array."""
    if isinstance(x, Mapping) or x is None:
        raise refuse_type(
            f"{function} got a {type(x).__name__}, but takes one array",
            f"use jax.tree.map(lambda leaf: {function}(leaf, ...), tree)",
        )
    return jnp.asarray(x)


def as_number(x: Any, function: str) -> jax.Array:
    """The operand of a collective that computes, as an array of numbers."""
    array = as_array(x, function)
    if array.dtype == jnp.bool_:
        raise refuse_type(
            f"{function} got booleans, which have no sum", "cast first: x.astype(jnp.int32)"
        )
    return array


def divided(total: jax.Array, count: Any) -> jax.Array:
    """`total / count` in the dtype of `total`; integers are rounded towards zero."""
    return jax.lax.div(total, jnp.asarray(count, total.dtype))


def place_in_group(size: int) -> jax.Array:
    """This replica's number within its group of `size`, int32."""
    return collectives.replication_index() % size
