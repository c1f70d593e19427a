"""What the models are made of; images are NHWC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax import rand_ops
from validation.models.variables import Variables

SEED = np.zeros(2, np.int32)  # of all masks: only what they cost counts


def drop(x: Any, rate: float = 0.1) -> Any:
    """Dropout."""
    return rand_ops.dropout(x, rate=rate, seed=SEED) if rate else x


def drop_path(x: Any, rate: float = 0.1) -> Any:
    """Stochastic depth: all of an example or nothing, as timm computes it."""
    kept = drop(jnp.ones((x.shape[0], *(1,) * (x.ndim - 1)), x.dtype), rate)
    x = x / (1 - rate)
    return x * kept


def dense(v: Variables, x: Any, width: int) -> Any:
    """A matrix product and a bias."""
    return x @ v("kernel", x.shape[-1], width) + v("bias", width)


def layer_norm(v: Variables, x: Any) -> Any:
    """Normalisation over the last axis."""
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    scale = lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-3)
    return centred * scale * v("scale", x.shape[-1]) + v("shift", x.shape[-1])


def attention(q: Any, k: Any, v: Any, heads: int, bias: Any = None, rate: float = 0.0) -> Any:
    """Multi-head attention of [batch, length, width], with dropout of its weights."""
    q, k, v = (split_heads(x, heads) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5)
    mixed = drop(jax.nn.softmax(scores if bias is None else scores + bias, axis=-1), rate) @ v
    return mixed.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


def self_attention(
    v: Variables,
    x: Any,
    heads: int,
    bias: Any = None,
    rate: float = 0.0,
    fused: bool = False,
) -> Any:
    """Attention with its projections; those of q, k and v are one product if they are fused."""
    if fused:
        q, k, value = jnp.split(dense(v / "qkv", x, 3 * x.shape[-1]), 3, axis=-1)
    else:
        q, k, value = (dense(v / name, x, x.shape[-1]) for name in ("q", "k", "v"))
    return dense(v / "out", attention(q, k, value, heads, bias, rate), x.shape[-1])


def mlp(v: Variables, x: Any, hidden: int, activation: Any = jax.nn.gelu) -> Any:
    """Two products with an activation between them."""
    return dense(v / "down", activation(dense(v / "up", x, hidden)), x.shape[-1])


def conv(
    v: Variables,
    x: Any,
    channels: int,
    size: int = 1,
    stride: int = 1,
    groups: int = 1,
    padding: str = "SAME",
) -> Any:
    """A convolution without bias."""
    kernel = v("kernel", size, size, x.shape[-1] // groups, channels)
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def batch_norm(v: Variables, x: Any, training: bool = True) -> Any:
    """Normalisation of channels; in inference a scale and a shift are left of it."""
    scale, shift = v("scale", x.shape[-1]), v("shift", x.shape[-1])
    if not training:
        return x * scale + shift
    mean = x.mean((0, 1, 2))
    centred = x - mean
    return centred * (lax.rsqrt((centred * centred).mean((0, 1, 2)) + 1e-3) * scale) + shift


def group_norm(v: Variables, x: Any, groups: int = 4) -> Any:
    """Normalisation of each image's groups of channels."""
    batch, height, width, channels = x.shape
    y = x.reshape(batch, height * width, groups, channels // groups)
    centred = y - y.mean((1, 3), keepdims=True)
    y = centred * lax.rsqrt((centred * centred).mean((1, 3), keepdims=True) + 1e-3)
    return y.reshape(x.shape) * v("scale", channels) + v("shift", channels)


def pool(x: Any, size: int, stride: int, padding: str = "SAME") -> Any:
    """The largest of each window."""
    shape, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, shape, strides, padding)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean over examples; integer labels, sums in float32."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def split_heads(x: Any, heads: int) -> Any:
    """[batch, heads, length, part] of [batch, length, width]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)
