"""Operators that change shapes, or tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.onnx.operators.table import operator


@operator("Constant")
def constant(
    value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
) -> Any:
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.asarray(value_float if value_floats is None else value_floats, np.float32)
    return np.asarray(value_int if value_ints is None else value_ints, np.int64)


@operator("Shape")
def shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    return np.asarray(np.shape(x)[start:end], np.int64)


@operator("Reshape", 5, static=("shape",))
def reshape(x: jax.Array, shape: Any, allowzero: int = 0) -> jax.Array:
    sizes = [int(s) for s in shape]
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return jnp.reshape(x, sizes)


@operator("Transpose")
def transpose(x: jax.Array, perm: Sequence[int] | None = None) -> jax.Array:
    return jnp.transpose(x, perm)
