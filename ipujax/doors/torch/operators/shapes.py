"""PyTorch operators that change the shape or the order of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.doors.graphs import Call
from ipujax.doors.torch.operators.table import operator

_RESHAPES = (
    "view.default", "_unsafe_view.default", "view_as.default", "view_copy.default",
    "reshape.default", "reshape_as.default", "_reshape_alias.default", "_reshape_copy.default",
    "flatten.using_ints", "unflatten.int", "ravel.default", "unsqueeze.default",
    "unsqueeze_copy.default",
    *(f"{name}.{o}" for name in ("squeeze", "squeeze_copy") for o in ("default", "dim", "dims")),
    *(f"atleast_{n}d.default" for n in (1, 2, 3)),
)  # fmt: skip
_BROADCASTS = ("expand.default", "expand_as.default", "expand_copy.default", "broadcast_to.default")


@operator(*(f"aten.{name}" for name in _RESHAPES), takes_call=True)
def reshape(call: Call, x: jax.Array, *_: object, **__: object) -> jax.Array:
    """Reshapes a tensor to the traced shape."""
    return x.reshape(call.aval.shape)


@operator("aten.resize.default", "aten.resize_as.default", takes_call=True)
def resize(call: Call, x: jax.Array, *_: object, **__: object) -> jax.Array:
    """Returns the first elements in a new shape, followed by zeros where PyTorch leaves garbage."""
    flat = x.reshape(-1)[: math.prod(call.aval.shape)]
    return jnp.pad(flat, (0, math.prod(call.aval.shape) - flat.size)).reshape(call.aval.shape)


@operator(*(f"aten.{name}" for name in _BROADCASTS), takes_call=True)
def broadcast_to_traced_shape(call: Call, x: jax.Array, *_: object, **__: object) -> jax.Array:
    return jnp.broadcast_to(x, call.aval.shape)


@operator("aten.permute.default", "aten.permute_copy.default")
def permute(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    return x.transpose([axis % x.ndim for axis in axes])


@operator(
    "aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default",
    "aten.swapdims.default",
)  # fmt: skip
def transpose(x: jax.Array, first_axis: int, second_axis: int) -> jax.Array:
    return x.swapaxes(first_axis, second_axis) if x.ndim else x


@operator(
    "aten.t.default", "aten.t_copy.default", "aten.numpy_T.default", "aten.matrix_H.default",
    "aten.mT.default", "aten.mH.default", "aten.adjoint.default",
takes_call=True,)  # fmt: skip
def matrix_transpose(call: Call, x: jax.Array) -> jax.Array:
    """Transposes matrices; `T` alone reverses all axes."""
    name = call.node.operator
    x = jnp.conj(x) if any(part in name for part in ("H.", "adjoint")) else x
    return x.T if "numpy_T" in name or x.ndim < 2 else x.mT


@operator("aten.repeat.default", "aten.tile.default")
def repeat(x: jax.Array, repeats: Sequence[int]) -> jax.Array:
    return jnp.tile(x, repeats)


@operator("aten.repeat_interleave.self_int")
def repeat_each(
    x: jax.Array, repeats: int, axis: int | None = None, *, output_size: int | None = None
) -> jax.Array:
    return jnp.repeat(x, repeats, axis)


@operator("aten.repeat_interleave.Tensor", takes_call=True)
def numbers_of_repeats(
    call: Call, repeats: jax.Array, *, output_size: int | None = None
) -> jax.Array:
    total = call.aval.shape[0]
    return jnp.repeat(jnp.arange(repeats.size), repeats, total_repeat_length=total)


@operator("aten.flip.default")
def flip(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    return jnp.flip(x, axes)


@operator("aten.roll.default")
def roll(x: jax.Array, shifts: Sequence[int], axes: Sequence[int] = ()) -> jax.Array:
    if not x.ndim:
        return x
    return jnp.roll(x, shifts, axes) if axes else jnp.roll(x, shifts[0])


@operator("aten.rot90.default")
def rot90(x: jax.Array, k: int = 1, axes: tuple[int, int] = (0, 1)) -> jax.Array:
    return jnp.rot90(x, k, axes)


@operator("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(x: jax.Array) -> jax.Array:
    return jnp.stack([x.real, x.imag], -1)


@operator("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(x: jax.Array) -> jax.Array:
    return jax.lax.complex(x[..., 0], x[..., 1])


@operator("aten.view.dtype", "aten.view_copy.dtype", takes_call=True)
def view_as_bits(call: Call, x: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Reinterprets the bits of numbers as another dtype."""
    if x.dtype == jnp.bool_ or call.aval.dtype == jnp.bool_:
        return x.astype(jnp.uint8).view(jnp.uint8).astype(call.aval.dtype)
    return x.view(call.aval.dtype)
