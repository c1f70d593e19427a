"""popnn.gru: GRU layers; gates are reset, update and candidate, in this order."""

from __future__ import annotations

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

GATES = 3
GruParams = check.guard(RecurrentParams)
"""The sizes of a layer: (dataType, batchSize, timeSteps, [input size, output size])."""

GruWeights = RecurrentWeights


def _run(
    x: jax.Array, state: jax.Array, w: jax.Array, u: jax.Array, b: jax.Array
) -> tuple[jax.Array]:
    """Returns the outputs of all steps, [steps, batch, size]."""

    def step(h: jax.Array, gate_inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        reset, update = (jax.nn.sigmoid(gate_inputs[n] + h @ u[n]) for n in (0, 1))
        candidate = jnp.tanh(gate_inputs[2] + (reset * h) @ u[2])
        h = update * h + (1 - update) * candidate
        return h, h

    from_input = jnp.einsum("tbi,gio->tgbo", x, w) + b[None, :, None]
    return (lax.scan(step, state, from_input)[1],)


@check.guard
def createWeights(graph: Graph, params: Any, name: str = "weights", *rest: Any) -> GruWeights:
    """Returns new weights, mapped linearly."""
    read_title("createWeights", rest)
    return add_weights(graph, params, GATES, name)


@check.guard
def createInitialState(graph: Graph, params: Any, name: str = "state", *rest: Any) -> Tensor:
    """Returns a new state, [batch, size], mapped linearly."""
    read_title("createInitialState", rest)
    return add_tensor(graph, params, params.state_shape, name)


@check.guard
def gruFwd(
    graph: Graph,
    params: Any,
    stateInit: Tensor,
    in_: Tensor,
    weights: GruWeights,
    intermediates: list[Tensor] | None,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds a layer to a program, and returns the outputs of all steps, [steps, batch, size].

    Args:
      graph: the graph.
      params: the sizes.
      stateInit: the state before the first step, [batch, size].
      in_: [steps, batch, input size].
      weights: the weights.
      intermediates: a list that gets the intermediates for `gruBwdWithWU`, or None.
      prog: the sequence.
      *rest: a name, options and a planning cache, which change nothing.
    """
    operands = read_operands(params, in_, [stateInit], weights, GATES)
    output = add_planned(graph, prog, read_title("gruFwd", rest), _run, operands)[0]
    if intermediates is not None:
        intermediates.append(output)
    return output


@check.guard
def gruBwdWithWU(
    graph: Graph,
    params: Any,
    prog: Sequence,
    stateInit: Tensor,
    fwdIntermediates: Any,
    weights: GruWeights,
    input: Tensor,
    output: Tensor,
    outputGrad: Tensor,
    inputGrad: list[Tensor] | None,
    *rest: Any,
) -> tuple[Tensor, GruWeights]:
    """Adds the gradients of a layer to a program.

    Args:
      graph: the graph.
      params: the sizes.
      prog: the sequence.
      stateInit: the state before the first step.
      fwdIntermediates: the intermediates of `gruFwd`; the steps are computed again.
      weights: the weights.
      input: [steps, batch, input size].
      output: the output that `gruFwd` returned.
      outputGrad: its gradient.
      inputGrad: a list that gets the gradient of the input, or None.
      *rest: a name, options and a planning cache, which change nothing.

    Returns:
      The gradients of the first state, and of the weights.
    """
    check.require_instance(fwdIntermediates, (Tensor, list), "fwdIntermediates")
    require_shape(output, outputGrad.shape(), "output")
    operands = read_operands(params, input, [stateInit], weights, GATES)
    title = read_title("gruBwd", rest)
    state, *weight_gradients = add_backward_pass(
        graph, prog, title, _run, operands, [outputGrad], inputGrad
    )
    return state, GruWeights(*weight_gradients)
