"""PopLibs' recurrent layers: their sizes and weights, and gradients of a scan over steps.

A backward pass computes the forward pass again. `intermediates` hold the forward pass's output.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from collections.abc import Sequence as AbstractSequence
from typing import Any

import jax

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


class RecurrentParams:
    """The sizes of a recurrent layer.

    Attributes:
      dataType: of all tensors.
      batchSize: sequences.
      timeSteps: steps of each.
      layerSizes: elements of a step of the input, and of the output.
    """

    def __init__(
        self, dataType: Type, batchSize: int, timeSteps: int, layerSizes: AbstractSequence[int]
    ):
        self.dataType = require_type(dataType, "dataType")
        self.batchSize = check.require_integer(batchSize, "batchSize", at_least=1)
        self.timeSteps = check.require_integer(timeSteps, "timeSteps", at_least=1)
        if len(layerSizes) != 2:
            raise check.value_error(
                f"layerSizes is {list(layerSizes)}", "give the input's and the output's size"
            )
        self.layerSizes = [check.require_integer(n, "a size", at_least=1) for n in layerSizes]

    @property
    def input_shape(self) -> list[int]:
        """The input's shape: [steps, batch, size]."""
        return [self.timeSteps, self.batchSize, self.layerSizes[0]]

    @property
    def state_shape(self) -> list[int]:
        """The shape of a state: [batch, size]."""
        return [self.batchSize, self.layerSizes[1]]

    def weight_shapes(self, gates: int) -> dict[str, list[int]]:
        """Returns the shapes of weights: of the input, of the state, and of the biases."""
        size_in, size = self.layerSizes
        return {
            "inputWeights": [gates, size_in, size],
            "outputWeights": [gates, size, size],
            "biases": [gates, size],
        }


@dc.dataclass(frozen=True)
class RecurrentWeights:
    """The weights: [gates, input size, size], [gates, size, size] and [gates, size]."""

    inputWeights: Tensor
    outputWeights: Tensor
    biases: Tensor

    def operands(self, params: RecurrentParams, gates: int) -> list[Tensor]:
        """Returns the three tensors; raises an error for shapes that the layer does not have."""
        tensors = (self.inputWeights, self.outputWeights, self.biases)
        shapes = params.weight_shapes(gates).values()
        pairs = zip(tensors, shapes, strict=True)
        return [require_shape(tensor, shape, "weights") for tensor, shape in pairs]


@check.guard
def createInput(graph: Graph, params: Any, name: str = "input", *rest: Any) -> Tensor:
    """Returns a new input, [steps, batch, size], mapped linearly."""
    read_title("createInput", rest)
    return add_tensor(graph, params, params.input_shape, name)


def add_weights(graph: Graph, params: RecurrentParams, gates: int, name: str) -> RecurrentWeights:
    """Returns new weights of a layer with so many gates, mapped linearly."""
    shapes = params.weight_shapes(gates).items()
    return RecurrentWeights(
        *(add_tensor(graph, params, shape, f"{name}/{part}") for part, shape in shapes)
    )


def add_tensor(
    graph: Graph, params: RecurrentParams, shape: AbstractSequence[int], name: str
) -> Tensor:
    """Returns a new tensor of the layer's type, mapped linearly."""
    tensor = graph.addVariable(params.dataType, shape, name)
    graph.map_linearly(tensor)
    return tensor


def require_shape(tensor: Any, shape: AbstractSequence[int], argument: str) -> Tensor:
    """Returns a tensor of this shape, or says that it has another one."""
    if check.require_instance(tensor, Tensor, argument).shape() != [*shape]:
        raise index_error(
            f"{argument} is {tensor}", where=user_line(), fix=f"give it the shape {[*shape]}"
        )
    return tensor


def read_operands(
    params: Any,
    in_: Tensor,
    states: AbstractSequence[Tensor],
    weights: RecurrentWeights,
    gates: int,
) -> list[Tensor]:
    """Returns a layer's input, states and weights; raises an error for shapes that do not fit."""
    check.require_instance(params, RecurrentParams, "params")
    require_shape(in_, params.input_shape, "in")
    for state in states:
        require_shape(state, params.state_shape, "stateInit")
    return [in_, *states, *weights.operands(params, gates)]


def add_backward_pass(
    graph: Graph,
    prog: Sequence,
    name: str,
    forward: Callable[..., Any],
    operands: AbstractSequence[Tensor],
    cotangents: AbstractSequence[Tensor | None],
    input_gradient: list[Tensor] | None,
) -> list[Tensor]:
    """Adds the gradients of all operands of a layer.

    Args:
      graph: the graph.
      prog: the sequence.
      name: the operation's name in reports.
      forward: the layer: its operands -> a tuple of results.
      operands: the input and all other operands.
      cotangents: the gradient of each result; None for zero.
      input_gradient: a list that gets the gradient of the input, or None.

    Returns:
      The gradients of all operands but the input.
    """
    given_cotangents = [cotangent for cotangent in cotangents if cotangent is not None]

    def compute(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        results, pull_back = jax.vjp(forward, *arrays[: len(operands)])
        gradients = iter(arrays[len(operands) :])
        all_cotangents = tuple(
            next(gradients) if cotangent is not None else jax.numpy.zeros_like(result)
            for cotangent, result in zip(cotangents, results, strict=True)
        )
        return pull_back(all_cotangents)

    of_input, *of_others = add_planned(graph, prog, name, compute, [*operands, *given_cotangents])
    if input_gradient is not None:
        input_gradient.append(of_input)
    return of_others
