"""PopART's own layers: parallel convolutions, an LSTM and batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.convolutions import conv
from ipujax.doors.onnx.operators.normalization import batch_normalization_9
from ipujax.doors.onnx.operators.recurrent import lstm as onnx_lstm
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Ints = Sequence[int]


@operator("ai.graphcore.MultiConv")
def multi_conv(
    *inputs: Operand,
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
    """Computes several convolutions, each of data, weights and an optional bias."""
    del planType, perConvReservedTiles, cycleBackOff  # only hints for Poplar's planner
    if any(d != 1 for d in inDilations) or any(outPads):
        raise check.value_error(
            "MultiConv with inDilations or outPads, which PopART does not support either",
            "use builder.aiOnnx.convtranspose for dilated inputs, and pad for outputs",
        )
    remaining_attributes = {
        "dilations": list(dilations),
        "pads": list(pads),
        "strides": list(strides),
    }
    results: list[Array] = []
    for number in range(numConvs):
        data, weight, *bias = inputs[3 * number : 3 * number + 3]
        conv_attributes: dict[str, Ints] = {}
        for name, numbers in remaining_attributes.items():
            count = (data.ndim - 2) * (2 if name == "pads" else 1)
            conv_attributes[name], remaining_attributes[name] = numbers[:count], numbers[count:]
        results.append(
            conv(data, weight, *bias, **{n: v or None for n, v in conv_attributes.items()})
        )
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
    """Returns the outputs of all steps, or of the last one, and the last cell state.

    Args:
      x: [time, batch, features].
      weights: [4, features + units, units], of the forget, input, cell and output gates.
      bias: [4, units].
      state: [2, batch, units], the initial output and cell state.
      lengths: the lengths of the sequences, [batch].
      output_full_sequence: whether to return the outputs of all steps.
    """
    features, units = x.shape[-1], weights.shape[-1]
    order = jnp.array([1, 3, 0, 2])  # ONNX's order of gates: input, output, forget, cell
    onnx_weights = jnp.swapaxes(jnp.asarray(weights)[order], 1, 2).reshape(
        1, 4 * units, features + units
    )
    onnx_bias = None
    if bias is not None:
        onnx_bias = jnp.pad(jnp.asarray(bias)[order].reshape(1, -1), ((0, 0), (0, 4 * units)))
    first, first_cell = (None, None) if state is None else (state[:1], state[1:])
    outputs, last, cell = onnx_lstm(
        x,
        onnx_weights[..., :features],
        onnx_weights[..., features:],
        onnx_bias,
        lengths,
        first,
        first_cell,
    )
    return (outputs[:, 0] if output_full_sequence else last[0]), cell[0]


@operator("ai.graphcore.BatchNormalization", takes_call=True)
def batch_normalization(
    call: Call,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Normalizes as ONNX's version 9 does, with unbiased moving and batch variances."""
    result = batch_normalization_9(call, x, scale, bias, mean, variance, **attributes)
    if len(result) == 1:
        return result
    count = x.size // x.shape[1]
    unbiased = result[4] * (count / (count - 1))
    momentum = attributes.get("momentum", 0.9)
    moving_variance = (variance * momentum + unbiased * (1 - momentum)).astype(variance.dtype)
    return result[0], result[1], moving_variance, result[3], unbiased
