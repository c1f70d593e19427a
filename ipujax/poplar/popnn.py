"""popnn: nonlinearities and losses; norms, pooling and recurrent layers are in its namespaces."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.poplar import popnn_bn as bn
from ipujax.poplar import popnn_gn as gn
from ipujax.poplar import popnn_gru as gru
from ipujax.poplar import popnn_ln as ln
from ipujax.poplar import popnn_lstm as lstm
from ipujax.poplar import popnn_pooling as pooling
from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_elementwise, add_planned, read_title
from ipujax.poplar.library_operations import addCodelets as addCodelets
from ipujax.poplar.popnn_losses import (
    CROSS_ENTROPY_LOSS,
    SUM_SQUARED_LOSS,
    LossType,
    calcAccuracy,
    calcLoss,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

__all__ = [
    "CROSS_ENTROPY_LOSS",
    "SUM_SQUARED_LOSS",
    "LossType",
    "bn",
    "calcAccuracy",
    "calcLoss",
    "gn",
    "gru",
    "ln",
    "lstm",
    "pooling",
]


class NonLinearityType(enum.Enum):
    """A function of each element, or for softmax of each row."""

    SIGMOID = 0
    HARD_SIGMOID = 1
    RELU = 2
    TANH = 3
    GELU = 4
    SWISH = 5
    SOFTMAX = 6
    SOFTMAX_STABLE = 7
    GELU_ERF = 8


def _hard_sigmoid(x: jax.Array) -> jax.Array:
    return jnp.clip(0.2 * x + 0.5, 0, 1)


def _softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=-1)


_FUNCTIONS: dict[NonLinearityType, Callable[[jax.Array], jax.Array]] = {
    NonLinearityType.SIGMOID: jax.nn.sigmoid,
    NonLinearityType.HARD_SIGMOID: _hard_sigmoid,
    NonLinearityType.RELU: jax.nn.relu,
    NonLinearityType.TANH: jnp.tanh,
    NonLinearityType.GELU: lambda x: jax.nn.gelu(x, approximate=True),
    NonLinearityType.GELU_ERF: lambda x: jax.nn.gelu(x, approximate=False),
    NonLinearityType.SWISH: jax.nn.swish,
    NonLinearityType.SOFTMAX: _softmax,
    NonLinearityType.SOFTMAX_STABLE: _softmax,
}
_ROW_FUNCTIONS = (NonLinearityType.SOFTMAX, NonLinearityType.SOFTMAX_STABLE)


def _softmax_gradient(y: jax.Array, g: jax.Array) -> jax.Array:
    product = y * g
    return product - y * product.sum(-1, keepdims=True)


_GRADIENTS: dict[NonLinearityType, Callable[[jax.Array, jax.Array], jax.Array]] = {
    NonLinearityType.SIGMOID: lambda y, g: g * y * (1 - y),
    NonLinearityType.HARD_SIGMOID: lambda y, g: jnp.where((y > 0) & (y < 1), 0.2 * g, 0),
    NonLinearityType.RELU: lambda y, g: jnp.where(y > 0, g, 0),
    NonLinearityType.TANH: lambda y, g: g * (1 - jnp.square(y)),
    NonLinearityType.SOFTMAX: _softmax_gradient,
    NonLinearityType.SOFTMAX_STABLE: _softmax_gradient,
}
"""The input's gradient as a function of the result and its gradient.

The gradients of all other nonlinearities are functions of the input.
"""


@check.guard
def nonLinearity(
    graph: Graph, nonLinearityType: NonLinearityType, t: Tensor, prog: Sequence, *rest: Any
) -> Tensor:
    """Adds a nonlinearity to a program, and returns its tensor; softmax is of the last dimension.

    Args:
      graph: the graph.
      nonLinearityType: the function.
      t: the tensor.
      prog: the sequence.
      *rest: a name and options, which change nothing.
    """
    return _add_nonlinearity(graph, nonLinearityType, t, prog, rest, in_place=False)


@check.guard
def nonLinearityInPlace(
    graph: Graph, nonLinearityType: NonLinearityType, t: Tensor, prog: Sequence, *rest: Any
) -> None:
    """Adds a nonlinearity, which is written to its operand; see `nonLinearity`."""
    _add_nonlinearity(graph, nonLinearityType, t, prog, rest, in_place=True)


def _add_nonlinearity(
    graph: Graph, type: Any, t: Any, prog: Sequence, trailing_arguments: tuple[Any, ...], *,
    in_place: bool,
) -> Tensor:  # fmt: skip
    function = _FUNCTIONS[_require_type(type)]
    check.require_instance(t, Tensor, "t")
    title = read_title(_name_of(type), trailing_arguments)
    if type in _ROW_FUNCTIONS:
        return add_planned(graph, prog, title, function, [t], outs=[t if in_place else None])[0]
    return add_elementwise(graph, prog, title, function, [t], in_place=in_place)


@check.guard
def nonLinearityInputGradient(
    graph: Graph,
    nonLinearityType: NonLinearityType,
    act: Tensor,
    outGradient: Tensor,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds the gradient of a nonlinearity's input to a program, and returns its tensor.

    Args:
      graph: the graph.
      nonLinearityType: the function.
      act: the function's result; for GELU, GELU_ERF and SWISH its input.
      outGradient: the gradient of its result.
      prog: the sequence.
      *rest: a name and options, which change nothing.
    """
    type = _require_type(nonLinearityType)

    def gradient_of_input(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(_FUNCTIONS[type], x)[1](g)[0]

    function = _GRADIENTS.get(type, gradient_of_input)
    title = read_title(f"{_name_of(type)}Gradient", rest)
    operands = [act, outGradient]
    if type in _ROW_FUNCTIONS:
        return add_planned(graph, prog, title, function, operands)[0]
    return add_elementwise(graph, prog, title, function, operands)


def _require_type(value: Any) -> NonLinearityType:
    return check.require_instance(value, NonLinearityType, "nonLinearityType")


def _name_of(type: NonLinearityType) -> str:
    first_word, *later_words = type.name.lower().split("_")
    return first_word + "".join(word.title() for word in later_words)
