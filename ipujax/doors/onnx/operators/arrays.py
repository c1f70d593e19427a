"""Helpers of ONNX operators for constants, dtypes and axes."""

from __future__ import annotations

import math
import types
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check

_MAX_ELEMENTS = 2**31 - 1


def are_constant(*values: Operand) -> bool:
    """Returns whether all values are constants, that is NumPy arrays or absent inputs."""
    return not any(isinstance(value, jax.Array) for value in values)


def numpy_or_jax(*values: Operand) -> types.ModuleType:
    """Returns NumPy if all values are constants, which saves compilation; else `jax.numpy`."""
    return np if are_constant(*values) else jnp


def int64_dtype() -> np.dtype:
    """Returns the dtype for ONNX's int64: int64 among constants, else int32."""
    return jax.dtypes.canonicalize_dtype(np.int64)


def has_integers(x: Operand) -> bool:
    """Returns whether an array has an integer dtype."""
    return jnp.issubdtype(x.dtype, jnp.integer)


def to_int_tuple(values: Operand) -> tuple[int, ...]:
    """Returns the elements of an array as a tuple of integers."""
    return tuple(int(value) for value in np.ravel(np.asarray(values)))


def normalize_axis(axis: int, rank: int, attribute_name: str = "axis") -> int:
    """Returns a non-negative axis for one that may be counted from the end.

    Raises:
      FrontendError: (a `ValueError`) there is no such axis.
    """
    if not -rank <= axis < rank:
        raise check.value_error(
            f"{attribute_name} = {axis} is outside the acceptable range [{-rank}, {rank - 1}]",
            "give one of the array's axes",
        )
    return axis % rank


def index_at_axis(axis: int, index: Operand) -> tuple[Operand, ...]:
    """Returns an indexing tuple with an index at one axis and full slices before it."""
    return (*[slice(None)] * axis, index)


def count_indices_from_front(index: Operand, size: int) -> Operand:
    """Returns indices counted from the front; negative ones are counted from the end."""
    return numpy_or_jax(index).where(index < 0, index + size, index)


def check_array_size(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape after a check that an array of it can exist.

    Raises:
      FrontendError: (a `ValueError`) a size is negative, or the array has too many elements.
    """
    problem = f"an array of shape {tuple(shape)} cannot be made"
    if any(size < 0 for size in shape):
        raise check.value_error(f"{problem}. Values must be non-negative in each shape dimension")
    if math.prod(shape) > _MAX_ELEMENTS:
        raise check.value_error(problem, "use a smaller one")
    return tuple(shape)
