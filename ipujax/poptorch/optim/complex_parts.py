"""Complex parameters as optimizers of torch see them: both parts as real numbers, side by side."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

COMPLEX = "complex64"
"""The name of the dtype of what an optimizer keeps of a complex parameter."""


def is_complex(variable: Any) -> bool:
    """Returns whether an array, or a tensor of torch, holds complex numbers."""
    if isinstance(variable, torch.Tensor):
        return variable.is_complex()
    return bool(jnp.iscomplexobj(variable))


def in_single(array: Any) -> jax.Array:
    """Returns an array in float32; of complex numbers, both parts along a new last axis."""
    if not jnp.iscomplexobj(array):
        return jnp.asarray(array).astype(jnp.float32)
    return jnp.stack([jnp.real(array), jnp.imag(array)], -1).astype(jnp.float32)


def numbers_like(single: jax.Array, array: Any) -> jax.Array:
    """Returns what `in_single` gave as complex numbers again, if those of the array are complex."""
    if not jnp.iscomplexobj(array):
        return single
    return jax.lax.complex(single[..., 0], single[..., 1])
