"""PyTorch attention, and transformer layers computed as one operator."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.activations import broadcast_key_mask, gelu, softmax_or_zero
from ipujax.doors.torch.operators.dropouts import drop_elements
from ipujax.doors.torch.operators.networks import linear
from ipujax.doors.torch.operators.normalization import layer_norm
from ipujax.doors.torch.operators.table import operator

Array = jax.Array


@operator("aten.scaled_dot_product_attention.default", takes_call=True)
def attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = jnp.repeat(key, times, -3), jnp.repeat(value, times, -3)
    weights = _attention_weights(query, key, mask, is_causal, scale)
    if dropout > 0:
        weights = drop_elements(call.key, weights, dropout)
    return jnp.matmul(weights, value)


@operator("aten._scaled_dot_product_flash_attention_for_cpu.default", takes_call=True)
def flash_attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    dropout: float = 0.0,
    is_causal: bool = False,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    result = attention(call, query, key, value, attn_mask, dropout, is_causal, scale)
    scores = _scores_with_mask(query, key, attn_mask, is_causal, scale)
    return result, jax.nn.logsumexp(scores, -1)


def _attention_weights(
    query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float | None
) -> Array:
    scores = _scores_with_mask(query, key, mask, is_causal, scale)
    if mask is None:  # every query then has keys
        return jax.nn.softmax(scores, -1)
    return softmax_or_zero(scores, -1)


def _scores_with_mask(
    query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float | None
) -> Array:
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query * jnp.asarray(scale, query.dtype), key.swapaxes(-1, -2))
    if is_causal:
        is_before = np.tri(scores.shape[-2], scores.shape[-1], dtype=bool)
        scores = jnp.where(is_before, scores, -jnp.inf)
    if mask is None:
        return scores
    return jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask


@operator("aten._native_multi_head_attention.default")
def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    weight: Array,
    bias: Array,
    mask: Array | None = None,
    need_weights: bool = True,
    average_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Array, Array]:
    """Computes attention in evaluation mode; masks are true for keys that are left out."""
    weights, biases = jnp.split(qkv_weight, 3), jnp.split(qkv_bias, 3)

    def project_heads(x: Array, part: int) -> Array:
        x = linear(x, weights[part], biases[part])
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    is_attended = None if mask is None else ~broadcast_key_mask(mask.astype(bool), mask_type)
    weights_of_keys = _attention_weights(
        project_heads(query, 0), project_heads(key, 1), is_attended, False, None
    )
    attended = (
        jnp.matmul(weights_of_keys, project_heads(value, 2)).swapaxes(1, 2).reshape(query.shape)
    )
    result = linear(attended, weight, bias)
    if not need_weights:
        return result, jnp.zeros((0,), result.dtype)
    return result, weights_of_keys.mean(1) if average_weights else weights_of_keys


@operator("aten._transformer_encoder_layer_fwd.default")
def transformer_encoder_layer(
    x: Array,
    embed_dim: int,
    heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    weight: Array,
    bias: Array,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *layer_arrays: Operand,
) -> Array:
    """Computes an encoder layer in evaluation mode."""
    scale_1, shift_1, scale_2, shift_2, weight_1, bias_1, weight_2, bias_2, *masks = layer_arrays
    mask, mask_type = (*masks, None, None)[:2]

    def attend(x: Array) -> Array:
        return multi_head_attention(
            x, x, x, embed_dim, heads, qkv_weight, qkv_bias, weight, bias, mask, False,
            mask_type=mask_type,
        )[0]  # fmt: skip

    def feed_forward(x: Array) -> Array:
        hidden = linear(x, weight_1, bias_1)
        hidden = gelu(hidden) if use_gelu else jax.nn.relu(hidden)
        return linear(hidden, weight_2, bias_2)

    def normalize_first(x: Array) -> Array:
        return layer_norm(x, (embed_dim,), scale_1, shift_1, eps)

    def normalize_second(x: Array) -> Array:
        return layer_norm(x, (embed_dim,), scale_2, shift_2, eps)

    if norm_first:
        x = x + attend(normalize_first(x))
        return x + feed_forward(normalize_second(x))
    x = normalize_first(x + attend(x))
    return normalize_second(x + feed_forward(x))
