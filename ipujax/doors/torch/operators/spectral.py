"""PyTorch Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.torch.operators.table import operator


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
