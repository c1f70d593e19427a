"""The shape, dtype and size of an abstract value (aval)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

Aval = Any  # JAX types avals as Any as well


def dtype_name(aval: Aval) -> str:
    """Returns the short name of an aval's dtype; a PRNG key's is `key<fry>`."""
    return _name_of_dtype(getattr(aval, "dtype", type(aval).__name__))


@functools.lru_cache(maxsize=1024)
def _name_of_dtype(dtype: Any) -> str:
    return "float0" if dtype == jax.dtypes.float0 else str(dtype)


def shape_of(aval: Aval) -> tuple[int, ...]:
    """Returns the shape of an aval; `()` for a value without a shape (a token)."""
    return tuple(getattr(aval, "shape", ()))


def signature_of(avals: Sequence[Aval]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Returns the shapes and dtypes of avals, in a form that can be compared."""
    return tuple((shape_of(aval), dtype_name(aval)) for aval in avals)


def size_of(aval: Aval) -> int:
    """Returns the number of elements of an array."""
    return math.prod(shape_of(aval))


def size_in_bytes(aval: Aval) -> int:
    """Returns the size of an array in bytes."""
    return size_of(aval) * aval.dtype.itemsize


def has_sub_byte_elements(aval: Aval) -> bool:
    """Returns whether an array's elements have fewer than 8 bits, such as int4."""
    return _is_sub_byte_dtype(aval.dtype)


@functools.lru_cache(maxsize=1024)
def _is_sub_byte_dtype(dtype: Any) -> bool:
    numpy = jax.numpy
    if numpy.issubdtype(dtype, numpy.integer):
        return numpy.iinfo(dtype).bits < 8
    return bool(numpy.issubdtype(dtype, numpy.floating)) and numpy.finfo(dtype).bits < 8


def is_numeric_dtype(dtype: Any) -> bool:
    """Returns whether JAX computes with a dtype; bfloat16 and its like are of NumPy's kind V."""
    kinds = (jax.numpy.number, jax.numpy.bool_)
    return any(jax.numpy.issubdtype(dtype, kind) for kind in kinds)
