"""The computation of primitives on one tile, as functions of `jax.lax`."""

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


_ADAPTED_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "iota": _iota,
    "reshape": _reshape,
    "convert_element_type": _convert,
    "round": lambda x, rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO: lax.round(
        x, rounding_method
    ),
}
"""Functions by the primitive's name; all others have that name in `jax.lax`."""

_VERTEX_FUNCTIONS: dict[str, Callable[..., Any]] = {"select_n": lax.select}
"""Functions that vertices compute unlike JAX: PopLibs takes the first array where a mask holds."""

_SCATTER_ONLY = ("update_jaxpr", "update_consts")
"""Parameters of scatter primitives that their functions in `jax.lax` do not take."""


def find_function(
    primitive: Any, parameters: Parameters, *, is_on_ipu: bool = False
) -> Callable[..., Any]:
    """Returns the function that a primitive, or its vertex, computes on one tile.

    Raises:
      NotImplementedError: a primitive that has neither a function in `jax.lax` nor `def_impl`.
    """
    name = getattr(primitive, "computes_as", primitive).name.replace("-", "_")
    if is_on_ipu and name in _VERTEX_FUNCTIONS:
        return _VERTEX_FUNCTIONS[name]
    if name in _ADAPTED_FUNCTIONS:
        return functools.partial(_ADAPTED_FUNCTIONS[name], **parameters)
    if primitive_has_batching(primitive) and hasattr(lax, name):
        lax_parameters = {
            key: value for key, value in parameters.items() if key not in _SCATTER_ONLY
        }
        return functools.partial(getattr(lax, name), **lax_parameters)
    if primitive_has_impl(primitive):
        return functools.partial(primitive.impl, **parameters)
    raise unsupported(
        f"primitive '{primitive.name}' does not say what it computes",
        "give it def_impl, or a vertex in C++",
    )
