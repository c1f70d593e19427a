"""What recurrent layers of PopLibs share: a scan over steps, and its gradients.

A backward pass computes the forward one again; what that one keeps for it is its output.
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
from ipujax.poplar.library_operations import add_planned, map_tensor_linearly, read_rest
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_places import user_place


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
        """Returns the three, of the shapes that a layer has."""
        given = (self.inputWeights, self.outputWeights, self.biases)
        shapes = params.weight_shapes(gates).values()
        pairs = zip(given, shapes, strict=True)
        return [require_shape(tensor, shape, "weights") for tensor, shape in pairs]


@check.guard
def createInput(graph: Graph, params: Any, name: str = "input", *rest: Any) -> Tensor:
    """Returns a new input, [steps, batch, size], spread linearly."""
    read_rest("createInput", rest)
    return add_tensor(graph, params, params.input_shape, name)


def add_weights(graph: Graph, params: RecurrentParams, gates: int, name: str) -> RecurrentWeights:
    """Returns new weights, spread linearly."""
    shapes = params.weight_shapes(gates).items()
    return RecurrentWeights(
        *(add_tensor(graph, params, shape, f"{name}/{part}") for part, shape in shapes)
    )


def add_tensor(
    graph: Graph, params: RecurrentParams, shape: AbstractSequence[int], name: str
) -> Tensor:
    """Returns a new tensor, spread linearly."""
    tensor = graph.addVariable(params.dataType, shape, name)
    map_tensor_linearly(graph, tensor)
    return tensor


def require_shape(tensor: Any, shape: AbstractSequence[int], what: str) -> Tensor:
    """Returns a tensor of this shape, or says that it has another one."""
    if check.require_instance(tensor, Tensor, what).shape() != [*shape]:
        raise index_error(
            f"{what} is {tensor}", where=user_place(), fix=f"give it the shape {[*shape]}"
        )
    return tensor


def add_gradients(
    graph: Graph,
    prog: Sequence,
    name: str,
    forward: Callable[..., Any],
    operands: AbstractSequence[Tensor],
    cotangents: AbstractSequence[Tensor | None],
) -> list[Tensor]:
    """Adds the gradients of all operands of a layer, and returns them.

    Args:
      graph: the graph.
      prog: the sequence.
      name: for reports.
      forward: the layer, of its operands -> a tuple.
      operands: what it is of.
      cotangents: the gradient of each result; None for none.
    """
    given = [each for each in cotangents if each is not None]

    def compute(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        results, pull_back = jax.vjp(forward, *arrays[: len(operands)])
        gradients = iter(arrays[len(operands) :])
        filled = tuple(
            next(gradients) if wanted is not None else jax.numpy.zeros_like(result)
            for wanted, result in zip(cotangents, results, strict=True)
        )
        return pull_back(filled)

    return add_planned(graph, prog, name, compute, [*operands, *given])
