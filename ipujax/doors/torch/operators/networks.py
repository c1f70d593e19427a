"""PyTorch neural network layers: linear, one-hot and shuffles."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.torch.operators.table import operator


@operator("aten.linear.default")
def linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    product = jnp.matmul(x, weight.T)
    return product if bias is None else product + bias


@operator("aten.bilinear.default")
def bilinear(
    x: jax.Array, y: jax.Array, weight: jax.Array, bias: jax.Array | None = None
) -> jax.Array:
    product = jnp.einsum("...i,oij,...j->...o", x, weight, y)
    return product if bias is None else product + bias


@operator("aten.one_hot.default")
def one_hot(x: jax.Array, num_classes: int = -1) -> jax.Array:
    return jax.nn.one_hot(x, num_classes, dtype=jnp.int32)


@operator("aten.pixel_shuffle.default")
def pixel_shuffle(x: jax.Array, factor: int) -> jax.Array:
    *leading_shape, channels, height, width = x.shape
    x = x.reshape(*leading_shape, channels // factor**2, factor, factor, height, width)
    count = x.ndim
    x = x.transpose(*range(count - 4), count - 2, count - 4, count - 1, count - 3)
    return x.reshape(*leading_shape, channels // factor**2, height * factor, width * factor)
