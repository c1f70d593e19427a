"""Arrays of zeros for any aval: weakly typed ones and PRNG keys included."""

from __future__ import annotations

import jax

from lowering.jaxprs import typed_jax
from lowering.jaxprs.avals import Aval


def zeros_of_aval(aval: Aval) -> jax.Array:
    """Returns an array of an aval's shape, dtype and weak type whose elements are zero."""
    return set_weak_type(typed_jax.zeros(aval.shape, aval.dtype), aval.weak_type)


def set_weak_type(array: jax.Array, is_weak: bool) -> jax.Array:
    """Makes an array weakly typed if `is_weak`: JAX promotes weak types differently."""
    if not is_weak:
        return array
    weak: jax.Array = typed_jax.convert_element_type_p.bind(
        array, new_dtype=array.dtype, weak_type=True, sharding=None
    )
    return weak
