"""What operators share: arrays that are known or not, their dtypes and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check

_MOST_ELEMENTS = 2**31 - 1


def known(*values: Any) -> bool:
    """Whether all these are known before the model runs; what an input left out is, too."""
    return not any(isinstance(value, jax.Array) for value in values)


def library(*values: Any) -> Any:
    """NumPy where all values are known, which saves compiling for them; else `jax.numpy`."""
    return np if known(*values) else jnp


def int64() -> np.dtype[Any]:
    """What JAX has for ONNX's integers of 64 bits: these among constants, else of 32."""
    return jax.dtypes.canonicalize_dtype(np.int64)


def whole(x: Any) -> bool:
    """Whether elements are integers."""
    return jnp.issubdtype(x.dtype, jnp.integer)


def ints(values: Any) -> tuple[int, ...]:
    """Integers out of an array, which may have no axes."""
    return tuple(int(value) for value in np.ravel(np.asarray(values)))


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from the front.

    Raises:
      FrontendError: (a `ValueError`) there is no such axis.
    """
    if not -rank <= axis < rank:
        raise check.refuse(
            f"{what} = {axis} is outside the acceptable range [{-rank}, {rank - 1}]",
            "give one of the array's axes",
        )
    return axis % rank


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """An index of one axis of several; the axis is counted from the front."""
    return (*[slice(None)] * axis, index)


def counted(index: Any, size: int) -> Any:
    """Indices counted from the front, where negative ones are counted from the end."""
    return library(index).where(index < 0, index + size, index)


def limited(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that an array can have that is made of a few numbers.

    Raises:
      FrontendError: (a `ValueError`) it has negative sizes, or more elements than 32 bits count.
    """
    what = f"an array of shape {tuple(shape)} cannot be made"
    if any(size < 0 for size in shape):
        raise check.refuse(f"{what}. Values must be non-negative in each shape dimension")
    if math.prod(shape) > _MOST_ELEMENTS:
        raise check.refuse(what, "use a smaller one")
    return tuple(shape)
