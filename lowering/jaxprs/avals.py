"""The shape, dtype and size of an abstract value (aval)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from lowering.jaxprs.typed_jax import finfo


class ShapedValue(Protocol):
    """Anything of a shape and a dtype: an aval, an array, a `jax.ShapeDtypeStruct`.

    Tokens have neither, though JAX calls what describes them an aval too.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements; that of a PRNG key is JAX's own class."""
        ...


@runtime_checkable
class Aval(ShapedValue, Protocol):
    """An abstract value: what JAX knows of a value while it traces."""

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is a Python number's, which the dtype of another operand overrides."""
        ...

    def update(
        self,
        *,
        shape: Sequence[int] | None = None,
        dtype: np.dtype[Any] | None = None,
        weak_type: bool | None = None,
    ) -> Aval:
        """Returns the aval with another shape, dtype or weak type."""
        ...

    def str_short(self, short_dtypes: bool = False) -> str:
        """Returns the aval in few letters."""
        ...


def dtype_name(aval: ShapedValue) -> str:
    """Returns the short name of an aval's dtype; a PRNG key's is `key<fry>`."""
    return _name_of_dtype(getattr(aval, "dtype", type(aval).__name__))


@functools.lru_cache(maxsize=1024)
def _name_of_dtype(dtype: Any) -> str:
    return "float0" if dtype == jax.dtypes.float0 else str(dtype)


def shape_of(aval: ShapedValue) -> tuple[int, ...]:
    """Returns the shape of an aval; `()` for a value without a shape (a token)."""
    return tuple(getattr(aval, "shape", ()))


def signature_of(avals: Sequence[ShapedValue]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Returns the shapes and dtypes of avals, in a form that can be compared."""
    return tuple((shape_of(aval), dtype_name(aval)) for aval in avals)


def size_of(aval: ShapedValue) -> int:
    """Returns the number of elements of an array."""
    return math.prod(shape_of(aval))


def size_in_bytes(aval: ShapedValue) -> int:
    """Returns the size of an array in bytes."""
    return size_of(aval) * aval.dtype.itemsize


def has_sub_byte_elements(aval: ShapedValue) -> bool:
    """Returns whether an array's elements have fewer than 8 bits, such as int4."""
    return _is_sub_byte_dtype(aval.dtype)


@functools.lru_cache(maxsize=1024)
def _is_sub_byte_dtype(dtype: Any) -> bool:
    numpy = jax.numpy
    if numpy.issubdtype(dtype, numpy.integer):
        return numpy.iinfo(dtype).bits < 8
    return bool(numpy.issubdtype(dtype, numpy.floating)) and finfo(dtype).bits < 8


def is_numeric_dtype(dtype: Any) -> bool:
    """Returns whether JAX computes with a dtype; bfloat16 and its like are of NumPy's kind V."""
    kinds = (jax.numpy.number, jax.numpy.bool_)
    return any(jax.numpy.issubdtype(dtype, kind) for kind in kinds)
