"""ONNX attention operators and rotary embeddings."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Bias = Array | None


def _split_heads(x: Array, heads: int | None) -> Array:
    """Splits [batch, length, heads * size] into [batch, heads, length, size]."""
    if x.ndim == 4:
        return jnp.asarray(x)
    if heads is None:
        raise check.value_error(
            "Attention is given three dimensions and no number of heads",
            "give it q_num_heads and kv_num_heads",
        )
    return jnp.reshape(x, (*x.shape[:2], heads, -1)).swapaxes(1, 2)


def _attention_scores(query: Array, key: Array) -> Array:
    """Multiplies queries by keys; several query heads may share one key head."""
    batch, heads, length, size = query.shape
    grouped_query = query.reshape(batch, key.shape[1], -1, length, size)
    return jnp.einsum("bhgqd,bhkd->bhgqk", grouped_query, key).reshape(batch, heads, length, -1)


def _attend_to_values(weights: Array, value: Array) -> Array:
    """Returns the weighted sums of values, [batch, heads, queries, size]."""
    batch, heads, length, keys = weights.shape
    grouped_weights = weights.reshape(batch, value.shape[1], -1, length, keys)
    return jnp.einsum("bhgqk,bhkd->bhgqd", grouped_weights, value).reshape(batch, heads, length, -1)


@operator("Attention", 23)
def attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Array, ...]:
    """Returns the result, all keys, all values, and the scores at the stage of the mode."""
    query, key, value = (
        _split_heads(q, q_num_heads),
        _split_heads(k, kv_num_heads),
        _split_heads(v, kv_num_heads),
    )
    if past_key is not None and past_value is not None:
        key = jnp.concatenate([past_key, key], 2)
        value = jnp.concatenate([past_value, value], 2)
    factor = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    factor = jnp.asarray(factor, query.dtype)
    scores = [_attention_scores(query * factor, key * factor)]
    scores.append(softcap * jnp.tanh(scores[0] / softcap) if softcap else scores[0])
    offset: Operand = 0 if past_key is None else past_key.shape[2]
    if nonpad_kv_seqlen is not None:
        offset = jnp.reshape(nonpad_kv_seqlen, (-1, 1, 1, 1)) - query.shape[2]
    right = 0 if is_causal else right_window_size
    bias = _mask_to_bias(attn_mask, scores[0])
    bias = _add_window_bias(bias, scores[0], offset, left_window_size, right)
    if nonpad_kv_seqlen is not None:
        is_unpadded = jnp.arange(key.shape[2]) < offset + query.shape[2]
        bias = _add_biases(bias, _mask_to_bias(is_unpadded, scores[0]))
    scores.append(scores[1] if bias is None else scores[1] + bias)
    precision = query.dtype if softmax_precision is None else dtype_of_onnx_type(softmax_precision)
    scores.append(_softmax_with_bias(scores[2].astype(precision), bias).astype(query.dtype))
    result = _attend_to_values(scores[3], value).astype(query.dtype)
    if q.ndim == 3:
        result = result.swapaxes(1, 2).reshape(*q.shape[:2], -1)
    return result, key, value, scores[qk_matmul_output_mode]


def _mask_to_bias(mask: Array | None, scores: Array) -> Bias:
    """Converts a mask to a bias of the scores; keys after a short mask are masked out."""
    if mask is None:
        return None
    if mask.dtype == bool:
        mask = jnp.where(mask, 0, -jnp.inf)
    missing_keys = scores.shape[-1] - mask.shape[-1]
    if missing_keys > 0:
        padding = [(0, 0)] * (mask.ndim - 1) + [(0, missing_keys)]
        mask = jnp.pad(mask, padding, constant_values=-jnp.inf)
    return jnp.asarray(mask, scores.dtype)


def _add_biases(first: Bias, second: Bias) -> Bias:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _add_window_bias(
    bias: Bias, scores: Array, offset: Operand, left_size: int, right_size: int
) -> Bias:
    """Returns a bias that masks keys too far to the left or right; -1 means no limit.

    Args:
      bias: the bias to add to.
      scores: the scores that are masked.
      offset: the number of keys before the first query.
      left_size: the number of keys before its own position that a query attends to.
      right_size: the number of keys after it.
    """
    if left_size < 0 and right_size < 0:
        return bias
    rows, columns = jnp.arange(scores.shape[2])[:, None], jnp.arange(scores.shape[3])
    distance = columns - (rows + offset)
    is_visible = jnp.ones(distance.shape, bool)
    if left_size >= 0:
        is_visible &= distance >= -left_size
    if right_size >= 0:
        is_visible &= distance <= right_size
    return _add_biases(bias, _mask_to_bias(is_visible, scores))


def _softmax_with_bias(scores: Array, bias: Bias) -> Array:
    """Returns the softmax of scores, which is zero for a query that attends to no key."""
    if bias is None:
        return jax.nn.softmax(scores, -1)
    has_no_key = jnp.isneginf(jnp.max(jax.lax.stop_gradient(bias), -1, keepdims=True))
    return jnp.where(has_no_key, 0, jax.nn.softmax(jnp.where(has_no_key, 0, scores), -1))


@operator("ai.onnx.preview.FlexAttention", takes_call=True)
def flex_attention(
    call: Call,
    q: Array,
    k: Array,
    v: Array,
    captured: tuple[Array, ...] = (),
    prob_mod: str | None = None,
    scale: float | None = None,
    score_mod: str | None = None,
    softmax_precision: int | None = None,
) -> Array:
    """Computes attention whose scores and weights can be changed by graphs."""
    factor = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    factor = jnp.asarray(factor, q.dtype)
    precision = jnp.promote_types(q.dtype, jnp.float32)
    if softmax_precision is not None:
        precision = dtype_of_onnx_type(softmax_precision)

    def apply_modifier(x: Array, graph: str | None) -> Array:
        if graph is None:
            return x
        return call.graphs[graph](x, *captured, key=call.inner_key)[0].astype(precision)

    scores = _attention_scores(q * factor, k * factor).astype(precision)
    weights = apply_modifier(jax.nn.softmax(apply_modifier(scores, score_mod), -1), prob_mod)
    return _attend_to_values(weights, v.astype(precision)).astype(v.dtype)


@operator("RotaryEmbedding", 23)
def rotary_embedding(
    x: Array,
    cosines: Array,
    sines: Array,
    positions: Array | None = None,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotates pairs of elements by angles that depend on their position in the sequence."""
    heads = _split_heads(x, num_heads or None)
    rotated_size = rotary_embedding_dim or heads.shape[-1]
    if positions is not None:
        cosines, sines = (jnp.take(c, positions, 0, mode="clip") for c in (cosines, sines))
    cosines, sines = (jnp.expand_dims(c, 1) for c in (cosines, sines))
    rotated_half, unrotated = heads[..., :rotated_size], heads[..., rotated_size:]
    if interleaved:
        first, second = rotated_half[..., ::2], rotated_half[..., 1::2]
    else:
        first, second = jnp.split(rotated_half, 2, -1)
    pair = (cosines * first - sines * second, sines * first + cosines * second)
    rotated = (
        jnp.stack(pair, -1).reshape(rotated_half.shape)
        if interleaved
        else jnp.concatenate(pair, -1)
    )
    result = jnp.concatenate([rotated, unrotated], -1).astype(x.dtype)
    return result if x.ndim == 4 else result.swapaxes(1, 2).reshape(x.shape)


@operator("LinearAttention", 27)
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    chunk_size: int = 64,  # only for implementations that work in chunks
    kv_num_heads: int = 1,
    q_num_heads: int = 1,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Returns the result and the last state, a matrix for each key head."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise check.value_error(
            f"update_rule is {update_rule!r}", "use linear, gated, delta or gated_delta"
        )
    for name, operand, rule in (("decay", decay, "gated"), ("beta", beta, "delta")):
        if (rule in update_rule) != (operand is not None):
            raise check.value_error(
                f"LinearAttention with update_rule {update_rule!r} and "
                f"{name}={operand is not None}",
                f"give it {name} where the rule is {rule}",
            )
    batch = query.shape[0]
    heads = (q_num_heads, kv_num_heads, kv_num_heads, kv_num_heads, kv_num_heads)
    steps = [
        None if x is None else _split_time_steps(x, h if x.shape[-1] % h == 0 else 1)
        for x, h in zip((query, key, value, decay, beta), heads, strict=True)
    ]
    queries, keys, values = steps[:3]
    factor = scale or 1 / math.sqrt(query.shape[-1] // q_num_heads)
    shape = (batch, kv_num_heads, key.shape[-1] // kv_num_heads, value.shape[-1] // kv_num_heads)
    state_dtype = jnp.promote_types(query.dtype, jnp.float32)
    state = jnp.zeros(shape, state_dtype) if past is None else past.astype(state_dtype)

    def attend_one_step(state: Array, entry: tuple[Operand, ...]) -> tuple[Array, Array]:
        query, key, value, decay, beta = entry
        state = state if decay is None else state * jnp.exp(decay)[..., None]
        if beta is not None:
            value = beta * (value - jnp.einsum("bhkv,bhk->bhv", state, key))
        state = state + key[..., None] * value[..., None, :]
        grouped_query = query.reshape(batch, kv_num_heads, -1, query.shape[-1])
        return state, factor * jnp.einsum("bhgk,bhkv->bhgv", grouped_query, state)

    last, outputs = jax.lax.scan(attend_one_step, state, (queries, keys, values, *steps[3:]))
    result = jnp.moveaxis(outputs, 0, 1).reshape(*query.shape[:2], -1)
    return result.astype(query.dtype), last.astype(query.dtype if past is None else past.dtype)


def _split_time_steps(x: Array, heads: int) -> Array:
    """Returns [time, batch, heads, size] with at least 32-bit floats."""
    parts = jnp.moveaxis(jnp.reshape(x, (*x.shape[:2], heads, -1)), 1, 0)
    return parts.astype(jnp.promote_types(x.dtype, jnp.float32))
