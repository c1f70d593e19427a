"""PopART's operators on sequences packed one after another in one array."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

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
    """Copies slices along the first axis; later slices overwrite earlier ones.

    Args:
      source: [n, ...].
      destination: [m, ...], the shape of the result.
      counts: the number of rows of each slice.
      source_offsets: the first row of each slice in the source.
      destination_offsets: the first row of each slice in the destination.
      zeroUnused: whether rows that no slice writes become zeros.
    """
    source, destination = jnp.asarray(source), jnp.asarray(destination)
    counts, first_source_rows, first_target_rows = (
        jnp.asarray(a).astype(jnp.int32) for a in (counts, source_offsets, destination_offsets)
    )
    steps = jnp.arange(len(destination))[:, None] - first_target_rows  # [rows, slices]
    is_inside = (steps >= 0) & (steps < counts)
    last = counts.size - 1 - jnp.argmax(is_inside[:, ::-1], axis=1)
    rows = first_source_rows[last] + jnp.take_along_axis(steps, last[:, None], 1)[:, 0]
    is_written = is_inside.any(1).reshape(-1, *[1] * (source.ndim - 1))
    unused_rows = jnp.zeros_like(destination) if zeroUnused else destination
    return jnp.where(is_written, source.at[rows].get(mode="clip"), unused_rows)


@operator("ai.graphcore.PackedDataBlock", takes_call=True)
def packed_data_block(
    call: Call,
    *arrays: Array,
    maxSequenceLengths: Sequence[int],
    resultSize: int,
    callbackBatchSize: int,
    callback: str,
    captured: Sequence[Operand] = (),
) -> Array:
    """Unpacks sequences, applies a graph to batches of them, and packs the results.

    Args:
      call: the call of the node.
      arrays: for each input [rows, ...], its offsets [n] and its lengths [n]; and then those of the
        result.
      maxSequenceLengths: for each input, the length to which its sequences are padded with zeros;
        the graph takes [batch, length, ...].
      resultSize: the number of rows of the result; rows that no sequence fills are zeros.
      callbackBatchSize: the number of sequences in a batch; it divides their number.
      callback: the graph, which returns one result [batch, length, ...].
      captured: the values that the graph reads from the graphs around it.
    """
    *packed, offsets, lengths = (jnp.asarray(array) for array in arrays)
    if len(packed) != 3 * len(maxSequenceLengths):
        raise check.value_error(
            f"{len(arrays)} inputs, and maxSequenceLengths of {len(maxSequenceLengths)}",
            "give data, offsets and lengths of each input, and offsets and lengths of the result",
        )
    if len(offsets) % callbackBatchSize:
        raise check.value_error(
            f"callbackBatchSize is {callbackBatchSize}, of {len(offsets)} sequences",
            "give one that divides their number",
        )
    input_groups = zip(packed[::3], packed[1::3], packed[2::3], maxSequenceLengths, strict=True)
    inputs = [_unpack_sequences(*operands) for operands in input_groups]
    batches = [x.reshape(-1, callbackBatchSize, *x.shape[1:]) for x in inputs]

    def compute_batch(numbered: Operand) -> Array:
        number, *batch = numbered
        key = None if call.inner_key is None else jax.random.fold_in(call.inner_key, number)
        return jnp.asarray(call.graphs[callback](*batch, *captured, key=key)[0])

    batch_results = jax.lax.map(compute_batch, (jnp.arange(len(batches[0])), *batches))
    count, size, *row_shape = len(offsets), *batch_results.shape[2:]
    result = jnp.zeros((resultSize, *row_shape), batch_results.dtype)
    begins = size * jnp.arange(count)
    return sequence_slice(batch_results.reshape(-1, *row_shape), result, lengths, begins, offsets)


def _unpack_sequences(x: Array, offsets: Array, lengths: Array, size: int) -> Array:
    """Unpacks sequences from [rows, ...] to [sequences, size, ...], padded with zeros."""
    steps = jnp.arange(size)
    rows = offsets[:, None].astype(jnp.int32) + steps
    is_inside = steps < lengths[:, None].astype(jnp.int32)
    return jnp.where(
        is_inside.reshape(*is_inside.shape, *[1] * (x.ndim - 1)), x.at[rows].get(mode="clip"), 0
    )
