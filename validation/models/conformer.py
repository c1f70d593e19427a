"""Conformer-medium as Graphcore trained it (speech/conformer/pytorch, configs/train.yaml).

Positions are a variable here instead of sines. The CTC loss is left out, since PopLibs has vertices
of its own for it; its projection to the vocabulary is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from validation.models.layers import (
    attention,
    batch_norm,
    conv,
    cross_entropy,
    dense,
    layer_norm,
    mlp,
    self_attention,
    split_heads,
)
from validation.models.variables import Variables

Part = Callable[..., Any]

FRAMES, MEL, WIDTH, HEADS, HIDDEN, KERNEL = 1220, 80, 256, 4, 2048, 15
DECODERS, VOCABULARY, TOKENS = 6, 4233, 48


def subsample(v: Variables, speech: Any, *rest: Any) -> Any:
    """Two strided convolutions, a quarter of the frames."""
    x = jax.nn.relu(conv(v / "conv1", speech[..., None], WIDTH, 3, 2, padding="VALID"))
    x = jax.nn.relu(conv(v / "conv2", x, WIDTH, 3, 2, padding="VALID"))
    return (dense(v / "in", x.reshape(*x.shape[:2], -1), WIDTH), *rest)


def encoder(v: Variables, x: Any, *rest: Any) -> Any:
    """Half a feed-forward part, attention, convolution, the other half."""
    x = x + 0.5 * mlp(v / "mlp1", layer_norm(v / "norm1", x), HIDDEN, jax.nn.silu)
    x = x + _relative_attention(v / "attention", layer_norm(v / "norm2", x))
    x = x + _convolution(v / "conv", layer_norm(v / "norm3", x))
    x = x + 0.5 * mlp(v / "mlp2", layer_norm(v / "norm4", x), HIDDEN, jax.nn.silu)
    return (layer_norm(v / "norm5", x), *rest)


def loss(v: Variables, x: Any, tokens: Any) -> Any:
    """The decoder's cross entropy, and the projection that CTC would take."""
    frames = jax.nn.log_softmax(dense(v / "ctc", x, VOCABULARY).astype(jnp.float32)).mean()
    y = v("embedding", VOCABULARY, WIDTH)[tokens]
    for number in range(DECODERS):
        y = _decoder(v / f"decoder{number}", y, x)
    return 0.7 * cross_entropy(dense(v / "out", y, VOCABULARY), tokens) + 0.3 * frames


def _relative_attention(v: Variables, x: Any) -> Any:
    """Attention whose scores also depend on positions: one more product for each query."""
    q, k, value = (dense(v / name, x, WIDTH) for name in ("q", "k", "v"))
    positions = v("positions", 1, x.shape[1], WIDTH) @ v("kernel", WIDTH, WIDTH)
    near = split_heads(q + v("bias_v", WIDTH), HEADS) @ split_heads(positions, HEADS).mT
    bias = near * (WIDTH // HEADS) ** -0.5
    mixed = attention(q + v("bias_u", WIDTH), k, value, HEADS, bias)
    return dense(v / "out", mixed, WIDTH)


def _convolution(v: Variables, x: Any) -> Any:
    y, gate = jnp.split(dense(v / "widen", x, 2 * WIDTH), 2, -1)
    y = (y * jax.nn.sigmoid(gate))[:, :, None]
    kernel = v("kernel", KERNEL, 1, 1, WIDTH)
    y = jax.lax.conv_general_dilated(
        y,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=WIDTH,
    )
    y = jax.nn.silu(batch_norm(v / "norm", y))[:, :, 0]
    return dense(v / "narrow", y, WIDTH)


def _decoder(v: Variables, y: Any, x: Any) -> Any:
    y = y + self_attention(v / "self", layer_norm(v / "norm1", y), HEADS)
    query = dense(v / "q", layer_norm(v / "norm2", y), WIDTH)
    mixed = attention(query, dense(v / "k", x, WIDTH), dense(v / "v", x, WIDTH), HEADS)
    y = y + dense(v / "mixed", mixed, WIDTH)
    return y + mlp(v / "mlp", layer_norm(v / "norm3", y), HIDDEN, jax.nn.relu)
