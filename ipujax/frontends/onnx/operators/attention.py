"""Attention."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Bias = Array | None


def _by_head(x: Array, heads: int | None) -> Array:
    """[batch, heads, length, size] of what may be [batch, length, heads * size]."""
    if x.ndim == 4:
        return jnp.asarray(x)
    if heads is None:
        raise check.refuse(
            "Attention is given three dimensions and no number of heads",
            "give it q_num_heads and kv_num_heads",
        )
    return jnp.reshape(x, (*x.shape[:2], heads, -1)).swapaxes(1, 2)


def _products(query: Array, key: Array) -> Array:
    """Of all pairs [batch, heads, queries, keys]; several heads of queries share one of keys."""
    batch, heads, length, size = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, length, size)
    return jnp.einsum("bhgqd,bhkd->bhgqk", grouped, key).reshape(batch, heads, length, -1)


def _weighted(shares: Array, value: Array) -> Array:
    """The sums of values [batch, heads, queries, size]."""
    batch, heads, length, keys = shares.shape
    grouped = shares.reshape(batch, value.shape[1], -1, length, keys)
    return jnp.einsum("bhgqk,bhkd->bhgqd", grouped, value).reshape(batch, heads, length, -1)


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
    """The result, all keys, all values, and the scores as they are at the point of the mode."""
    query, key, value = (
        _by_head(q, q_num_heads),
        _by_head(k, kv_num_heads),
        _by_head(v, kv_num_heads),
    )
    if past_key is not None and past_value is not None:
        key = jnp.concatenate([past_key, key], 2)
        value = jnp.concatenate([past_value, value], 2)
    factor = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    factor = jnp.asarray(factor, query.dtype)
    scores = [_products(query * factor, key * factor)]
    scores.append(softcap * jnp.tanh(scores[0] / softcap) if softcap else scores[0])
    offset: Any = 0 if past_key is None else past_key.shape[2]
    if nonpad_kv_seqlen is not None:
        offset = jnp.reshape(nonpad_kv_seqlen, (-1, 1, 1, 1)) - query.shape[2]
    right = 0 if is_causal else right_window_size
    bias = _bias(attn_mask, scores[0])
    bias = _with_window(bias, scores[0], offset, left_window_size, right)
    if nonpad_kv_seqlen is not None:
        inside = jnp.arange(key.shape[2]) < offset + query.shape[2]
        bias = _both(bias, _bias(inside, scores[0]))
    scores.append(scores[1] if bias is None else scores[1] + bias)
    precision = query.dtype if softmax_precision is None else dtype_of(softmax_precision)
    scores.append(_shares(scores[2].astype(precision), bias).astype(query.dtype))
    result = _weighted(scores[3], value).astype(query.dtype)
    if q.ndim == 3:
        result = result.swapaxes(1, 2).reshape(*q.shape[:2], -1)
    return result, key, value, scores[qk_matmul_output_mode]


def _bias(mask: Array | None, scores: Array) -> Bias:
    """What is added to scores; a short mask leaves out the keys after it."""
    if mask is None:
        return None
    if mask.dtype == bool:
        mask = jnp.where(mask, 0, -jnp.inf)
    missing = scores.shape[-1] - mask.shape[-1]
    if missing > 0:
        room = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
        mask = jnp.pad(mask, room, constant_values=-jnp.inf)
    return jnp.asarray(mask, scores.dtype)


def _both(one: Bias, other: Bias) -> Bias:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _with_window(bias: Bias, scores: Array, offset: Any, left: int, right: int) -> Bias:
    """A bias that leaves out the keys too far on the left or the right; -1 is no limit.

    Args:
      bias: to add to.
      scores: that it is for.
      offset: how many keys come before the first query.
      left: how many keys before its own place a query attends to.
      right: how many after it.
    """
    if left < 0 and right < 0:
        return bias
    rows, columns = jnp.arange(scores.shape[2])[:, None], jnp.arange(scores.shape[3])
    ahead = columns - (rows + offset)
    sees = jnp.ones(ahead.shape, bool)
    if left >= 0:
        sees &= ahead >= -left
    if right >= 0:
        sees &= ahead <= right
    return _both(bias, _bias(sees, scores))


def _shares(scores: Array, bias: Bias) -> Array:
    """The softmax, which is zero for a query that attends to nothing."""
    if bias is None:
        return jax.nn.softmax(scores, -1)
    blind = jnp.isneginf(jnp.max(jax.lax.stop_gradient(bias), -1, keepdims=True))
    return jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, scores), -1))


@operator("ai.onnx.preview.FlexAttention")
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
    """Attention whose scores and shares graphs may change."""
    factor = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    factor = jnp.asarray(factor, q.dtype)
    precision = jnp.promote_types(q.dtype, jnp.float32)
    if softmax_precision is not None:
        precision = dtype_of(softmax_precision)

    def changed(x: Array, graph: str | None) -> Array:
        if graph is None:
            return x
        return call.graphs[graph](x, *captured, key=call.inner_key)[0].astype(precision)

    scores = _products(q * factor, k * factor).astype(precision)
    shares = changed(jax.nn.softmax(changed(scores, score_mod), -1), prob_mod)
    return _weighted(shares, v.astype(precision)).astype(v.dtype)


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
    """Turns pairs of elements by angles that depend on their place in the sequence."""
    heads = _by_head(x, num_heads or None)
    turned = rotary_embedding_dim or heads.shape[-1]
    if positions is not None:
        cosines, sines = (jnp.take(c, positions, 0, mode="clip") for c in (cosines, sines))
    cosines, sines = (jnp.expand_dims(c, 1) for c in (cosines, sines))
    moving, rest = heads[..., :turned], heads[..., turned:]
    if interleaved:
        first, second = moving[..., ::2], moving[..., 1::2]
    else:
        first, second = jnp.split(moving, 2, -1)
    pair = (cosines * first - sines * second, sines * first + cosines * second)
    moved = jnp.stack(pair, -1).reshape(moving.shape) if interleaved else jnp.concatenate(pair, -1)
    result = jnp.concatenate([moved, rest], -1).astype(x.dtype)
    return result if x.ndim == 4 else result.swapaxes(1, 2).reshape(x.shape)


@operator("LinearAttention", 27)
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    chunk_size: int = 64,  # is for other ways to compute the same
    kv_num_heads: int = 1,
    q_num_heads: int = 1,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """The result and the last state, which is a matrix for each head of keys."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise check.refuse(
            f"update_rule is {update_rule!r}", "use linear, gated, delta or gated_delta"
        )
    for name, given, rule in (("decay", decay, "gated"), ("beta", beta, "delta")):
        if (rule in update_rule) != (given is not None):
            raise check.refuse(
                f"LinearAttention with update_rule {update_rule!r} and {name}={given is not None}",
                f"give it {name} where the rule is {rule}",
            )
    batch = query.shape[0]
    heads = (q_num_heads, kv_num_heads, kv_num_heads, kv_num_heads, kv_num_heads)
    steps = [
        None if x is None else _steps(x, h if x.shape[-1] % h == 0 else 1)
        for x, h in zip((query, key, value, decay, beta), heads, strict=True)
    ]
    queries, keys, values = steps[:3]
    factor = scale or 1 / math.sqrt(query.shape[-1] // q_num_heads)
    shape = (batch, kv_num_heads, key.shape[-1] // kv_num_heads, value.shape[-1] // kv_num_heads)
    kind = jnp.promote_types(query.dtype, jnp.float32)
    state = jnp.zeros(shape, kind) if past is None else past.astype(kind)

    def step(state: Array, entry: tuple[Any, ...]) -> tuple[Array, Array]:
        query, key, value, decay, beta = entry
        state = state if decay is None else state * jnp.exp(decay)[..., None]
        if beta is not None:
            value = beta * (value - jnp.einsum("bhkv,bhk->bhv", state, key))
        state = state + key[..., None] * value[..., None, :]
        grouped = query.reshape(batch, kv_num_heads, -1, query.shape[-1])
        return state, factor * jnp.einsum("bhgk,bhkv->bhgv", grouped, state)

    last, outputs = jax.lax.scan(step, state, (queries, keys, values, *steps[3:]))
    result = jnp.moveaxis(outputs, 0, 1).reshape(*query.shape[:2], -1)
    return result.astype(query.dtype), last.astype(query.dtype if past is None else past.dtype)


def _steps(x: Array, heads: int) -> Array:
    """[time, batch, heads, size] in at least 32 bits."""
    parts = jnp.moveaxis(jnp.reshape(x, (*x.shape[:2], heads, -1)), 1, 0)
    return parts.astype(jnp.promote_types(x.dtype, jnp.float32))
