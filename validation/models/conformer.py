"""Conformer-medium as Graphcore trained it (speech/conformer/pytorch, configs/train.yaml).

Positions are a variable here instead of sines. The recursion of the CTC loss is left out: PopLibs
plans some 200,000 cycles for it (lib/popnn/CTCLossPlan.cpp), on the IPU with the least to do; its
projection to the vocabulary is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from validation.models.layers import (
    conv,
    dense,
    drop,
    layer_norm,
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
    return (drop(dense(v / "in", x.reshape(*x.shape[:2], -1), WIDTH)), *rest)


def encoder(v: Variables, x: Any, tokens: Any, lengths: Any) -> Any:
    """Half a feed-forward part, attention, convolution, the other half."""
    x = x + 0.5 * _feed_forward(v / "mlp1", layer_norm(v / "norm1", x), _swish)
    x = x + _relative_attention(v / "attention", layer_norm(v / "norm2", x), lengths)
    x = x + _convolution(v / "conv", layer_norm(v / "norm3", x))
    x = x + 0.5 * _feed_forward(v / "mlp2", layer_norm(v / "norm4", x), _swish)
    return layer_norm(v / "norm5", x), tokens, lengths


def loss(v: Variables, x: Any, tokens: Any, lengths: Any) -> Any:
    """The decoder's loss with smoothed labels, and the projection that CTC would take."""
    x = layer_norm(v / "after", x)
    frames = jax.nn.log_softmax(dense(v / "ctc", x, VOCABULARY)).mean()
    y = drop(v("embedding", VOCABULARY, WIDTH)[tokens])
    for number in range(DECODERS):
        y = _decoder(v / f"decoder{number}", y, x, lengths)
    logits = dense(v / "out", layer_norm(v / "last", y), VOCABULARY)
    wanted = jax.nn.one_hot(tokens, VOCABULARY, dtype=logits.dtype) * 0.9 + 0.1 / VOCABULARY
    smoothed = (wanted * (jnp.log(wanted) - jax.nn.log_softmax(logits))).sum()
    return 0.7 * smoothed + 0.3 * frames


def _feed_forward(v: Variables, x: Any, activation: Any) -> Any:
    y = drop(activation(dense(v / "up", x, HIDDEN)))
    return drop(dense(v / "down", y, WIDTH))


def _swish(x: Any) -> Any:
    gate = jax.nn.sigmoid(x)
    return x * gate


def _relative_attention(v: Variables, x: Any, lengths: Any) -> Any:
    """Attention whose scores also depend on positions: one more product for each query."""
    q, k, value = (dense(v / name, x, WIDTH) for name in ("q", "k", "v"))
    positions = v("positions", 1, x.shape[1], WIDTH) @ v("kernel", WIDTH, WIDTH)
    near = split_heads(q + v("bias_v", WIDTH), HEADS) @ split_heads(positions, HEADS).mT
    scores = split_heads(q + v("bias_u", WIDTH), HEADS) @ split_heads(k, HEADS).mT
    return _masked(v / "out", scores + near, value, lengths)


def _masked(v: Variables, scores: Any, value: Any, lengths: Any) -> Any:
    """What attends by its scores, except to padding (src/layers/attention.py)."""
    scores = scores / (WIDTH // HEADS) ** 0.5
    mask = (jnp.arange(value.shape[1]) < lengths[:, None, None, None]).astype(scores.dtype)
    scores = scores * mask
    scores = scores + (mask - 1) * 1e3
    weights = jax.nn.softmax(scores)
    weights = weights * mask
    mixed = weights @ split_heads(value, HEADS)
    return drop(dense(v, mixed.swapaxes(1, 2).reshape(value.shape[0], -1, WIDTH), WIDTH))


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
    y = _swish(layer_norm(v / "norm", y[:, :, 0]))
    return drop(dense(v / "narrow", y, WIDTH))


def _decoder(v: Variables, y: Any, x: Any, lengths: Any) -> Any:
    y = y + drop(self_attention(v / "self", layer_norm(v / "norm1", y), HEADS))
    query = dense(v / "q", layer_norm(v / "norm2", y), WIDTH)
    key, value = (dense(v / name, x, WIDTH) for name in ("k", "v"))
    scores = split_heads(query, HEADS) @ split_heads(key, HEADS).mT
    y = y + _masked(v / "mixed", scores, value, lengths)
    return y + _feed_forward(v / "mlp", layer_norm(v / "norm3", y), jax.nn.relu)
