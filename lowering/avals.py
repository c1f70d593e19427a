"""What is known of an array without its numbers: its shape, its dtype, its size."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

Aval = Any  # JAX types avals as Any as well


def dtype_name(aval: Aval) -> str:
    """A short name of an aval's dtype; a PRNG key's is `key<fry>`."""
    return _name_of(getattr(aval, "dtype", type(aval).__name__))


@functools.lru_cache(maxsize=1024)
def _name_of(dtype: Any) -> str:
    return "float0" if dtype == jax.dtypes.float0 else str(dtype)


def shape_of(aval: Aval) -> tuple[int, ...]:
    """An aval's shape; `()` for what has none (tokens)."""
    return tuple(getattr(aval, "shape", ()))


def signature_of(avals: Sequence[Aval]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shapes and dtypes, to compare what two sides of the compiler expect of one another."""
    return tuple((shape_of(aval), dtype_name(aval)) for aval in avals)


def size_of(aval: Aval) -> int:
    """How many numbers an array has."""
    return math.prod(shape_of(aval))


def size_in_bytes(aval: Aval) -> int:
    """Bytes of an array."""
    return size_of(aval) * aval.dtype.itemsize


def has_sub_byte_elements(aval: Aval) -> bool:
    """Whether the elements of an array have fewer than 8 bits, as those of int4 do."""
    return _has_sub_byte_elements(aval.dtype)


@functools.lru_cache(maxsize=1024)
def _has_sub_byte_elements(dtype: Any) -> bool:
    numpy = jax.numpy
    if numpy.issubdtype(dtype, numpy.integer):
        return numpy.iinfo(dtype).bits < 8
    return bool(numpy.issubdtype(dtype, numpy.floating)) and numpy.finfo(dtype).bits < 8


def is_number(dtype: Any) -> bool:
    """Whether JAX computes with a NumPy dtype; bfloat16 and its like are NumPy's kind V."""
    kinds = (jax.numpy.number, jax.numpy.bool_)
    return any(jax.numpy.issubdtype(dtype, kind) for kind in kinds)
