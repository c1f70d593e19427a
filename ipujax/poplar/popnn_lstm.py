"""popnn.lstm: LSTM layers; gates are forget, input, candidate and output, in this order."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title
from ipujax.poplar.popnn_recurrent import (
    RecurrentParams,
    RecurrentWeights,
    add_backward_pass,
    add_tensor,
    add_weights,
    read_operands,
    require_shape,
)
from ipujax.poplar.popnn_recurrent import createInput as createInput
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

GATES = 4
LstmParams = check.guard(RecurrentParams)
"""The sizes of a layer: (dataType, batchSize, timeSteps, [input size, output size])."""

LstmWeights = RecurrentWeights


@dc.dataclass(frozen=True)
class LstmState:
    """The state after a step: its output and its cell, [batch, size] each."""

    output: Tensor
    cellState: Tensor


def _run(
    x: jax.Array, output: jax.Array, cell: jax.Array, w: jax.Array, u: jax.Array, b: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the outputs of all steps, [steps, batch, size], and the last cell."""

    def step(state: tuple[jax.Array, jax.Array], gate_inputs: jax.Array) -> Any:
        h, c = state
        gates = gate_inputs + jnp.einsum("bi,gio->gbo", h, u)
        forget, enter, leave = (jax.nn.sigmoid(gates[n]) for n in (0, 1, 3))
        c = forget * c + enter * jnp.tanh(gates[2])
        h = leave * jnp.tanh(c)
        return (h, c), h

    from_input = jnp.einsum("tbi,gio->tgbo", x, w) + b[None, :, None]
    (_, last), outputs = lax.scan(step, (output, cell), from_input)
    return outputs, last


@check.guard
def createWeights(graph: Graph, params: Any, name: str = "weights", *rest: Any) -> LstmWeights:
    """Returns new weights, mapped linearly."""
    read_title("createWeights", rest)
    return add_weights(graph, params, GATES, name)


@check.guard
def createInitialState(graph: Graph, params: Any, name: str = "state", *rest: Any) -> LstmState:
    """Returns a new state, mapped linearly."""
    read_title("createInitialState", rest)
    parts = ("output", "cellState")
    return LstmState(*(add_tensor(graph, params, params.state_shape, f"{name}/{p}") for p in parts))


@check.guard
def lstmFwd(
    graph: Graph,
    params: Any,
    stateInit: LstmState,
    in_: Tensor,
    weights: LstmWeights,
    intermediates: list[Tensor] | None,
    prog: Sequence,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """Adds a layer to a program.

    Args:
      graph: the graph.
      params: the sizes.
      stateInit: the state before the first step.
      in_: [steps, batch, input size].
      weights: the weights.
      intermediates: a list that gets the intermediates for `lstmBwdWithWU`, or None.
      prog: the sequence.
      *rest: a name, options and a planning cache, which change nothing.

    Returns:
      The outputs of all steps, [steps, batch, size], and the cells after the last.
    """
    states = [stateInit.output, stateInit.cellState]
    operands = read_operands(params, in_, states, weights, GATES)
    title = read_title("lstmFwd", rest)
    output, cell = add_planned(graph, prog, title, _run, operands)
    if intermediates is not None:
        intermediates.append(output)
    return output, cell


@check.guard
def lstmBwdWithWU(
    graph: Graph,
    params: Any,
    prog: Sequence,
    stateInit: LstmState,
    fwdIntermediates: Any,
    weights: LstmWeights,
    input: Tensor,
    output: Tensor,
    outputGrad: Tensor,
    lastCellStateGrad: Tensor | None,
    inputGrad: list[Tensor] | None,
    *rest: Any,
) -> tuple[LstmState, LstmWeights]:
    """Adds the gradients of a layer to a program.

    Args:
      graph: the graph.
      params: the sizes.
      prog: the sequence.
      stateInit: the state before the first step.
      fwdIntermediates: the intermediates of `lstmFwd`; the steps are computed again.
      weights: the weights.
      input: [steps, batch, input size].
      output: the output that `lstmFwd` returned.
      outputGrad: its gradient.
      lastCellStateGrad: the gradient of the last cells, or None.
      inputGrad: a list that gets the gradient of the input, or None.
      *rest: a name, options and a planning cache, which change nothing.

    Returns:
      The gradients of the first state, and of the weights.
    """
    check.require_instance(fwdIntermediates, (Tensor, list), "fwdIntermediates")
    require_shape(output, outputGrad.shape(), "output")
    states = [stateInit.output, stateInit.cellState]
    operands = read_operands(params, input, states, weights, GATES)
    title, cotangents = read_title("lstmBwd", rest), [outputGrad, lastCellStateGrad]
    output_state, cell_state, *weight_gradients = add_backward_pass(
        graph, prog, title, _run, operands, cotangents, inputGrad
    )
    return LstmState(output_state, cell_state), LstmWeights(*weight_gradients)
