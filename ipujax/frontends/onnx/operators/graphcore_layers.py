"""PopART's own layers: convolutions side by side, an LSTM, normalization of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.convolutions import conv
from ipujax.frontends.onnx.operators.normalization import batch_normalization_9
from ipujax.frontends.onnx.operators.recurrent import lstm as onnx_lstm
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Ints = Sequence[int]


@operator("ai.graphcore.MultiConv")
def multi_conv(
    *inputs: Any,
    numConvs: int,
    dilations: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
    inDilations: Ints = (),
    outPads: Ints = (),
    planType: str | None = None,
    perConvReservedTiles: int | None = None,
    cycleBackOff: float | None = None,
) -> tuple[Array, ...]:
    """Data, weights and bias of each convolution; numbers of windows of all of them in a row."""
    del planType, perConvReservedTiles, cycleBackOff  # how the original planned them
    if any(d != 1 for d in inDilations) or any(outPads):
        raise check.refuse(
            "MultiConv with inDilations or outPads, which the original left out, too",
            "use builder.aiOnnx.convtranspose for dilated inputs, and pad for outputs",
        )
    left = {"dilations": list(dilations), "pads": list(pads), "strides": list(strides)}
    results: list[Array] = []
    for number in range(numConvs):
        data, weight, *bias = inputs[3 * number : 3 * number + 3]
        own: dict[str, Ints] = {}
        for name, numbers in left.items():
            count = (data.ndim - 2) * (2 if name == "pads" else 1)
            own[name], left[name] = numbers[:count], numbers[count:]
        results.append(conv(data, weight, *bias, **{n: v or None for n, v in own.items()}))
    return tuple(results)


@operator("ai.graphcore.LSTM")
def lstm(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    state: Array | None = None,
    lengths: Array | None = None,
    output_full_sequence: int = 1,
) -> tuple[Array, Array]:
    """The outputs of all steps, or of the last one, and the last cells.

    Args:
      x: [time, batch, features].
      weights: [4, features + units, units], for what is forgotten, enters, is new, and goes out.
      bias: [4, units].
      state: [2, batch, units], the output and the cells before.
      lengths: of the sequences, [batch].
      output_full_sequence: whether all steps' outputs are wanted.
    """
    features, units = x.shape[-1], weights.shape[-1]
    order = jnp.array([1, 3, 0, 2])  # ONNX's: what enters, goes out, is forgotten, is new
    rows = jnp.swapaxes(jnp.asarray(weights)[order], 1, 2).reshape(1, 4 * units, features + units)
    both = None
    if bias is not None:
        both = jnp.pad(jnp.asarray(bias)[order].reshape(1, -1), ((0, 0), (0, 4 * units)))
    first, first_cell = (None, None) if state is None else (state[:1], state[1:])
    outputs, last, cell = onnx_lstm(
        x, rows[..., :features], rows[..., features:], both, lengths, first, first_cell
    )
    return (outputs[:, 0] if output_full_sequence else last[0]), cell[0]


@operator("ai.graphcore.BatchNormalization")
def batch_normalization(
    call: Call,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    **attributes: Any,
) -> tuple[Array, ...]:
    """As ONNX's of version 9, but that the moving variance, and the batch's, are unbiased."""
    result = batch_normalization_9(call, x, scale, bias, mean, variance, **attributes)
    if len(result) == 1:
        return result
    count = x.size // x.shape[1]
    unbiased = result[4] * (count / (count - 1))
    momentum = attributes.get("momentum", 0.9)
    moved = (variance * momentum + unbiased * (1 - momentum)).astype(variance.dtype)
    return result[0], result[1], moved, result[3], unbiased
