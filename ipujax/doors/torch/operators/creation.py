"""Operators that create tensors from numbers and shapes."""

from __future__ import annotations

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.table import operator

# Uninitialized memory is zero here, so that runs are reproducible.
_ZEROS = (
    "zeros.default", "zeros_like.default", "new_zeros.default", "zero.default",
    "empty.memory_format", "empty_like.default", "empty_strided.default",
    "empty_permuted.default", "new_empty.default", "new_empty_strided.default",
)  # fmt: skip
_ONES = ("ones.default", "ones_like.default", "new_ones.default")


@operator(*(f"aten.{name}" for name in _ZEROS), takes_call=True)
def zeros(call: Call, *_: object, **__: object) -> jax.Array:
    return jnp.zeros(call.aval.shape, call.aval.dtype)


@operator(*(f"aten.{name}" for name in _ONES), takes_call=True)
def ones(call: Call, *_: object, **__: object) -> jax.Array:
    return jnp.ones(call.aval.shape, call.aval.dtype)


@operator("aten.full.default", "aten.full_like.default", takes_call=True)
@operator("aten.fill.Scalar", "aten.fill.Tensor", takes_call=True)
def full(call: Call, size_or_like: Operand, value: ArrayLike, **_: object) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(value, call.aval.dtype), call.aval.shape)


@operator("aten.new_full.default", takes_call=True)
def new_full(call: Call, like: jax.Array, size: object, value: ArrayLike, **_: object) -> jax.Array:
    return full(call, size, value)


@operator("aten.scalar_tensor.default", takes_call=True)
def scalar_tensor(call: Call, value: ArrayLike, **_: object) -> jax.Array:
    return jnp.asarray(value, call.aval.dtype)


@operator("aten.arange.default", takes_call=True)
def arange(call: Call, end: Operand, **_: object) -> jax.Array:
    return arange_from(call, 0, end)


@operator(
    "aten.arange.start",
    "aten.arange.start_step",
    "aten.range.default",
    "aten.range.step",
    takes_call=True,
)
def arange_from(call: Call, start: Any, end: Operand, step: Any = 1, **_: object) -> jax.Array:
    if jnp.issubdtype(call.aval.dtype, jnp.integer):
        start, step = int(start), int(step)
    numbers = start + step * np.arange(call.aval.shape[0])
    return jnp.asarray(numbers.astype(call.aval.dtype))


@operator(
    "aten.linspace.default", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor",
takes_call=True,)  # fmt: skip
def linspace(call: Call, start: Operand, end: Operand, steps: int, **_: object) -> Operand:
    return _interpolate_evenly(call, start, end, steps)


@operator(
    "aten.logspace.default", "aten.logspace.Tensor_Tensor", "aten.logspace.Tensor_Scalar",
    "aten.logspace.Scalar_Tensor",
takes_call=True,)  # fmt: skip
def logspace(
    call: Call, start: Operand, end: Operand, steps: int, base: float = 10.0, **_: object
) -> Operand:
    return base ** _interpolate_evenly(call, start, end, steps)


def _interpolate_evenly(call: Call, start: Any, end: Any, steps: int) -> Operand:
    """Returns evenly spaced numbers, counted from both ends so that both are exact."""
    is_constant = not isinstance(start, jax.Array) and not isinstance(end, jax.Array)
    library: types.ModuleType = np if is_constant else jnp
    if jnp.issubdtype(call.aval.dtype, jnp.integer):
        start, end = library.trunc(start), library.trunc(end)
    step = (end - start) / max(steps - 1, 1)
    number = np.arange(steps)
    is_first_half = number < max(steps // 2, 1)
    return library.where(is_first_half, start + step * number, end - step * number[::-1])


@operator("aten.eye.default", "aten.eye.m", takes_call=True)
def eye(call: Call, *_: object, **__: object) -> jax.Array:
    return jnp.eye(*call.aval.shape, dtype=call.aval.dtype)


@operator("aten.tril_indices.default")
def tril_indices(rows: int, columns: int, offset: int = 0, **_: object) -> jax.Array:
    return jnp.asarray(np.stack(np.tril_indices(rows, offset, columns)))


@operator("aten.triu_indices.default")
def triu_indices(rows: int, columns: int, offset: int = 0, **_: object) -> jax.Array:
    return jnp.asarray(np.stack(np.triu_indices(rows, offset, columns)))
