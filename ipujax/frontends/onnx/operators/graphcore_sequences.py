"""PopART's operators of sequences that lie one after another in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array


@operator("ai.graphcore.SequenceSlice")
def sequence_slice(
    source: Array,
    destination: Array,
    counts: Array,
    source_offsets: Array,
    destination_offsets: Array,
    zeroUnused: int = 0,
) -> Array:
    """Copies slices along the first axis: later ones over earlier ones.

    Args:
      source: [n, ...].
      destination: [m, ...], as the result.
      counts: how many rows each slice has.
      source_offsets: where each begins in the source.
      destination_offsets: where it goes.
      zeroUnused: whether rows that none goes to become zeros.
    """
    source, destination = jnp.asarray(source), jnp.asarray(destination)
    counts, begins, goes = (
        jnp.asarray(a).astype(jnp.int32) for a in (counts, source_offsets, destination_offsets)
    )
    steps = jnp.arange(len(destination))[:, None] - goes  # [rows, slices]
    is_inside = (steps >= 0) & (steps < counts)
    last = counts.size - 1 - jnp.argmax(is_inside[:, ::-1], axis=1)
    rows = begins[last] + jnp.take_along_axis(steps, last[:, None], 1)[:, 0]
    is_given = is_inside.any(1).reshape(-1, *[1] * (source.ndim - 1))
    rest = jnp.zeros_like(destination) if zeroUnused else destination
    return jnp.where(is_given, source.at[rows].get(mode="clip"), rest)


@operator("ai.graphcore.PackedDataBlock")
def packed_data_block(
    call: Call,
    *arrays: Array,
    maxSequenceLengths: Sequence[int],
    resultSize: int,
    callbackBatchSize: int,
    callback: str,
    captured: Sequence[Any] = (),
) -> Array:
    """Unpacks sequences, computes a graph of some at a time, and packs what it gives.

    Args:
      call: of the node.
      arrays: for each input [rows, ...], its offsets [n] and its lengths [n]; and then those of the
        result.
      maxSequenceLengths: of each input's sequences: the graph is given [batch, length, ...], zeros
        after the end of each.
      resultSize: rows of the result; those that no sequence goes to are zeros.
      callbackBatchSize: how many sequences the graph is given at a time; it divides their number.
      callback: the graph, of one result [batch, length, ...].
      captured: what it takes from around.
    """
    *packed, offsets, lengths = (jnp.asarray(array) for array in arrays)
    if len(packed) != 3 * len(maxSequenceLengths):
        raise check.refuse(
            f"{len(arrays)} inputs, and maxSequenceLengths of {len(maxSequenceLengths)}",
            "give data, offsets and lengths of each input, and offsets and lengths of the result",
        )
    if len(offsets) % callbackBatchSize:
        raise check.refuse(
            f"callbackBatchSize is {callbackBatchSize}, of {len(offsets)} sequences",
            "give one that divides their number",
        )
    given = zip(packed[::3], packed[1::3], packed[2::3], maxSequenceLengths, strict=True)
    inputs = [_unpacked(*one) for one in given]
    batches = [x.reshape(-1, callbackBatchSize, *x.shape[1:]) for x in inputs]

    def computed(numbered: Any) -> Array:
        number, *given = numbered
        key = None if call.inner_key is None else jax.random.fold_in(call.inner_key, number)
        return jnp.asarray(call.graphs[callback](*given, *captured, key=key)[0])

    found = jax.lax.map(computed, (jnp.arange(len(batches[0])), *batches))
    count, size, *rest = len(offsets), *found.shape[2:]
    result = jnp.zeros((resultSize, *rest), found.dtype)
    begins = size * jnp.arange(count)
    return sequence_slice(found.reshape(-1, *rest), result, lengths, begins, offsets)


def _unpacked(x: Array, offsets: Array, lengths: Array, size: int) -> Array:
    """Sequences out of [rows, ...]: [sequences, size, ...], with zeros after their ends."""
    steps = jnp.arange(size)
    rows = offsets[:, None].astype(jnp.int32) + steps
    is_inside = steps < lengths[:, None].astype(jnp.int32)
    return jnp.where(
        is_inside.reshape(*is_inside.shape, *[1] * (x.ndim - 1)), x.at[rows].get(mode="clip"), 0
    )
