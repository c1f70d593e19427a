"""Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.pytorch.operators.table import operator

Sizes = Sequence[int] | None


def _complex(x: jax.Array) -> jax.Array:
    return x.astype(jnp.result_type(x.dtype, jnp.complex64))


def _real(x: jax.Array) -> jax.Array:
    return x.astype(jnp.result_type(x.dtype, jnp.float32))


def _define(name: str, function: Any, prepare: Any) -> None:
    """Of one axis: `fft_<name>(x, n, dim, norm)`."""

    @operator(f"aten.fft_{name}.default")
    def transform(
        x: jax.Array, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> jax.Array:
        return function(prepare(x), n, dim, norm)

    del transform  # the table has it


def _define_many(name: str, function: Any, prepare: Any, dims: Any) -> None:
    """Of several axes: `fft_<name>(x, s, dim, norm)`."""

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
    """Of all axes but the last, and of the last one as of half a real spectrum."""
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


_ONE: dict[str, tuple[Any, Any]] = {
    "fft": (jnp.fft.fft, _complex),
    "ifft": (jnp.fft.ifft, _complex),
    "rfft": (jnp.fft.rfft, _real),
    "irfft": (jnp.fft.irfft, _complex),
    "hfft": (jnp.fft.hfft, _complex),
    "ihfft": (jnp.fft.ihfft, _real),
}
_MANY: dict[str, tuple[Any, Any]] = {
    "fft": (jnp.fft.fftn, _complex),
    "ifft": (jnp.fft.ifftn, _complex),
    "rfft": (jnp.fft.rfftn, _real),
    "irfft": (jnp.fft.irfftn, _complex),
    "hfft": (_hfftn, _complex),
    "ihfft": (_ihfftn, _real),
}

for _name, (_function, _prepare) in _ONE.items():
    _define(_name, _function, _prepare)
for _name, (_function, _prepare) in _MANY.items():
    _define_many(f"{_name}2", _function, _prepare, (-2, -1))
    _define_many(f"{_name}n", _function, _prepare, None)


@operator("aten.fft_fftshift.default")
def fftshift(x: jax.Array, dim: Any = None) -> jax.Array:
    return jnp.fft.fftshift(x, dim)


@operator("aten.fft_ifftshift.default")
def ifftshift(x: jax.Array, dim: Any = None) -> jax.Array:
    return jnp.fft.ifftshift(x, dim)


# By PyTorch's numbers for how transforms are scaled: the exponent of their size.
_EXPONENTS = {0: 0.0, 1: -0.5, 2: -1.0}


def _scale(sizes: Sequence[int], normalization: int) -> float:
    return math.prod(sizes) ** _EXPONENTS[normalization]


@operator("aten._fft_c2c.default")
def c2c(x: jax.Array, dim: Sequence[int], normalization: int, forward: bool) -> jax.Array:
    scale = _scale([x.shape[d] for d in dim], normalization)
    if forward:
        return jnp.fft.fftn(x, axes=tuple(dim)) * scale
    return jnp.fft.ifftn(x, axes=tuple(dim), norm="forward") * scale


@operator("aten._fft_r2c.default")
def r2c(x: jax.Array, dim: Sequence[int], normalization: int, onesided: bool) -> jax.Array:
    scale = _scale([x.shape[d] for d in dim], normalization)
    return (jnp.fft.rfftn if onesided else jnp.fft.fftn)(x, axes=tuple(dim)) * scale


@operator("aten._fft_c2r.default")
def c2r(x: jax.Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> jax.Array:
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    scale = _scale(sizes, normalization)
    return jnp.fft.irfftn(x, sizes, axes=tuple(dim), norm="forward") * scale
