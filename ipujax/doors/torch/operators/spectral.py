"""PyTorch Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.torch.operators.table import operator

Sizes = Sequence[int] | None


def _as_complex(x: jax.Array) -> jax.Array:
    return x.astype(jnp.result_type(x.dtype, jnp.complex64))


def _as_real(x: jax.Array) -> jax.Array:
    return x.astype(jnp.result_type(x.dtype, jnp.float32))


def _register_transform(
    name: str, function: Callable[..., Operand], prepare: Callable[..., Operand]
) -> None:
    """Registers a transform of one axis: `fft_<name>(x, n, dim, norm)`."""

    @operator(f"aten.fft_{name}.default")
    def transform(
        x: jax.Array, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> jax.Array:
        return function(prepare(x), n, dim, norm)

    del transform  # the table has it


def _register_transform_of_axes(
    name: str, function: Callable[..., Operand], prepare: Callable[..., Operand], dims: Sizes
) -> None:
    """Registers a transform of several axes: `fft_<name>(x, s, dim, norm)`."""

    @operator(f"aten.fft_{name}.default")
    def transform(
        x: jax.Array, s: Sizes = None, dim: Sizes = dims, norm: str | None = None
    ) -> jax.Array:
        if dim is None:
            dim = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
        axes = tuple(axis % x.ndim for axis in dim)
        if s is not None:
            s = [x.shape[a] if n == -1 else n for a, n in zip(axes, s, strict=True)]
        return function(prepare(x), s, axes, norm)

    del transform  # the table has it


def _hfftn(x: jax.Array, s: Sizes, axes: tuple[int, ...], norm: str | None) -> jax.Array:
    """Transforms all axes but the last, then the last one as half of a real spectrum."""
    sizes = [None] * len(axes) if s is None else list(s)
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = jnp.fft.fft(x, size, axis, norm)
    return jnp.fft.hfft(x, sizes[-1], axes[-1], norm)


def _ihfftn(x: jax.Array, s: Sizes, axes: tuple[int, ...], norm: str | None) -> jax.Array:
    sizes = [None] * len(axes) if s is None else list(s)
    x = jnp.fft.ihfft(x, sizes[-1], axes[-1], norm)
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = jnp.fft.ifft(x, size, axis, norm)
    return x


_TRANSFORMS_OF_ONE_AXIS: dict[str, tuple[Callable[..., Operand], Callable[..., Operand]]] = {
    "fft": (jnp.fft.fft, _as_complex),
    "ifft": (jnp.fft.ifft, _as_complex),
    "rfft": (jnp.fft.rfft, _as_real),
    "irfft": (jnp.fft.irfft, _as_complex),
    "hfft": (jnp.fft.hfft, _as_complex),
    "ihfft": (jnp.fft.ihfft, _as_real),
}
_TRANSFORMS_OF_MANY_AXES: dict[str, tuple[Callable[..., Operand], Callable[..., Operand]]] = {
    "fft": (jnp.fft.fftn, _as_complex),
    "ifft": (jnp.fft.ifftn, _as_complex),
    "rfft": (jnp.fft.rfftn, _as_real),
    "irfft": (jnp.fft.irfftn, _as_complex),
    "hfft": (_hfftn, _as_complex),
    "ihfft": (_ihfftn, _as_real),
}

for _name, (_function, _prepare) in _TRANSFORMS_OF_ONE_AXIS.items():
    _register_transform(_name, _function, _prepare)
for _name, (_function, _prepare) in _TRANSFORMS_OF_MANY_AXES.items():
    _register_transform_of_axes(f"{_name}2", _function, _prepare, (-2, -1))
    _register_transform_of_axes(f"{_name}n", _function, _prepare, None)


@operator("aten.fft_fftshift.default")
def fftshift(x: jax.Array, dim: Any = None) -> jax.Array:
    return jnp.fft.fftshift(x, dim)


@operator("aten.fft_ifftshift.default")
def ifftshift(x: jax.Array, dim: Any = None) -> jax.Array:
    return jnp.fft.ifftshift(x, dim)


# PyTorch's normalization codes: the exponent of the transform's size.
_EXPONENTS = {0: 0.0, 1: -0.5, 2: -1.0}


def _normalization_factor(sizes: Sequence[int], normalization: int) -> float:
    return math.prod(sizes) ** _EXPONENTS[normalization]


@operator("aten._fft_c2c.default")
def c2c(x: jax.Array, dim: Sequence[int], normalization: int, forward: bool) -> jax.Array:
    scale = _normalization_factor([x.shape[d] for d in dim], normalization)
    if forward:
        return jnp.fft.fftn(x, axes=tuple(dim)) * scale
    return jnp.fft.ifftn(x, axes=tuple(dim), norm="forward") * scale


@operator("aten._fft_r2c.default")
def r2c(x: jax.Array, dim: Sequence[int], normalization: int, onesided: bool) -> jax.Array:
    scale = _normalization_factor([x.shape[d] for d in dim], normalization)
    return (jnp.fft.rfftn if onesided else jnp.fft.fftn)(x, axes=tuple(dim)) * scale


@operator("aten._fft_c2r.default")
def c2r(x: jax.Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> jax.Array:
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    scale = _normalization_factor(sizes, normalization)
    return jnp.fft.irfftn(x, sizes, axes=tuple(dim), norm="forward") * scale
