"""What primitives compute on one tile, as functions of JAX that today's `jax.lax` has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax

from ipujax.tessellate.core.tile_interpreter_primitives import (
    primitive_has_batching,
    primitive_has_impl,
)
from ipujax.tessellate.exceptions import unsupported

Parameters = Mapping[str, Any]


def _iota(*, dtype: Any, shape: Any, dimension: int) -> jax.Array:
    return lax.broadcasted_iota(dtype, shape, dimension)


def _reshape(x: jax.Array, *, new_sizes: Any, dimensions: Any = None) -> jax.Array:
    if dimensions is not None:
        raise unsupported("reshape on tiles with another order of dimensions", "leave it out")
    return lax.reshape(x, new_sizes)


def _convert(x: jax.Array, *, new_dtype: Any, weak_type: bool = False) -> jax.Array:
    del weak_type  # a value on tiles has a type of its own
    return lax.convert_element_type(x, new_dtype)


_OWN: dict[str, Callable[..., Any]] = {
    "iota": _iota,
    "reshape": _reshape,
    "convert_element_type": _convert,
    "round": lambda x, rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO: lax.round(
        x, rounding_method
    ),
}
"""By the primitive's name; others are functions of that name in `jax.lax`."""

_OF_VERTICES: dict[str, Callable[..., Any]] = {"select_n": lax.select}
"""What vertices compute otherwise than JAX: PopLibs takes the first array where a mask holds."""

_OF_SCATTERS = ("update_jaxpr", "update_consts")
"""Parameters of the primitives that their functions in `jax.lax` do not take."""


def find_function(
    primitive: Any, parameters: Parameters, *, is_on_ipu: bool = False
) -> Callable[..., Any]:
    """Returns what a primitive computes on one tile, or what its vertex does.

    Raises:
      NotImplementedError: a primitive that has neither a function in `jax.lax` nor `def_impl`.
    """
    name = getattr(primitive, "computes_as", primitive).name.replace("-", "_")
    if is_on_ipu and name in _OF_VERTICES:
        return _OF_VERTICES[name]
    if name in _OWN:
        return functools.partial(_OWN[name], **parameters)
    if primitive_has_batching(primitive) and hasattr(lax, name):
        known = {key: value for key, value in parameters.items() if key not in _OF_SCATTERS}
        return functools.partial(getattr(lax, name), **known)
    if primitive_has_impl(primitive):
        return functools.partial(primitive.impl, **parameters)
    raise unsupported(
        f"primitive '{primitive.name}' does not say what it computes",
        "give it def_impl, or a vertex in C++",
    )
