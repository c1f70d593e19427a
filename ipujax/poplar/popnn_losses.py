"""popnn: losses with their gradients, and the number of right answers."""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_MASKED_LABEL = -1  # popops::MASKED_LABEL_CODE, as an INT


class LossType(enum.Enum):
    """The kinds of losses: of numbers, or of probabilities with labels."""

    SUM_SQUARED_LOSS = 0
    CROSS_ENTROPY_LOSS = 1


# In C++ they are in the namespace, too.
SUM_SQUARED_LOSS = LossType.SUM_SQUARED_LOSS
CROSS_ENTROPY_LOSS = LossType.CROSS_ENTROPY_LOSS


@check.guard
def calcLoss(
    graph: Graph,
    modelOutputs: Tensor,
    expected: Tensor,
    loss: Tensor,
    deltas: Tensor,
    *arguments: Any,
    lossType: LossType | None = None,
) -> Sequence:
    """Returns a program that writes the loss of each row, and the gradients.

    Rows whose label is MASKED_LABEL_CODE, all bits of which are one, have neither.

    Args:
      graph: the graph.
      modelOutputs: [batch, classes]; of CROSS_ENTROPY_LOSS probabilities, as softmax gives them.
      expected: labels [batch], or what SUM_SQUARED_LOSS compares with, [batch, classes].
      loss: [batch], which is written: half the sum of squares, or -log of the label's probability.
      deltas: [batch, classes], which is written: the gradient of modelOutputs, or of what softmax
        was of.
      *arguments: `deltasScale` and `modelOutputScaling`, or none; `numCorrect`, or none, to which
        the right answers are added, see `calcAccuracy`; the `LossType`; a name and options, which
        change nothing.
      lossType: the kind of loss, where it is not among these.
    """
    if lossType is not None:
        arguments = (*arguments, lossType)
    tensors, loss_type, rest = _split_loss_arguments(arguments)
    is_entropy = loss_type is LossType.CROSS_ENTROPY_LOSS
    has_labels = expected.rank() == 1
    expected_shape = modelOutputs.shape()[:1] if has_labels else modelOutputs.shape()
    if modelOutputs.rank() != 2 or expected.shape() != expected_shape or is_entropy > has_labels:
        raise index_error(
            f"a loss of {modelOutputs} and {expected}",
            where=user_line(),
            fix="give [batch, classes] and as many numbers, or labels [batch]",
        )
    scales = tensors[:2] if len(tensors) > 1 else []
    if scales and not is_entropy:
        raise check.value_error(
            "deltasScale and modelOutputScaling are of CROSS_ENTROPY_LOSS", "leave them out"
        )

    def compute(
        outputs: jax.Array, expected: jax.Array, *scales: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        deltas_scale, output_scale = scales or (jnp.ones((), outputs.dtype),) * 2
        targets = _one_hot(expected, outputs) if has_labels else expected
        if is_entropy:
            probabilities = outputs / output_scale
            smallest = jnp.finfo(outputs.dtype).tiny
            losses = -targets * jnp.log(probabilities + smallest)
            differences = deltas_scale * (probabilities - targets)
        else:
            differences = outputs - targets
            losses = jnp.square(differences) / 2
        if has_labels:
            is_masked = (_as_labels(expected) == _MASKED_LABEL)[:, None]
            losses, differences = (jnp.where(is_masked, 0, x) for x in (losses, differences))
        return losses.sum(-1), differences

    prog, title = Sequence(), read_title("calcLoss", rest)
    operands = [modelOutputs, expected, *(scale.reshape([]) for scale in scales)]
    add_planned(graph, prog, title, compute, operands, outs=[loss, deltas])
    if len(tensors) % 2:
        prog.add(calcAccuracy(graph, modelOutputs, expected, tensors[-1], *rest))
    return prog


def _split_loss_arguments(
    arguments: tuple[Any, ...],
) -> tuple[list[Tensor], LossType, tuple[Any, ...]]:
    """Returns the tensors before the kind of loss, the kind, and what is behind it."""
    kinds = (i for i, argument in enumerate(arguments) if isinstance(argument, LossType))
    index = next(kinds, len(arguments))
    tensors = [check.require_instance(tensor, Tensor, "a tensor") for tensor in arguments[:index]]
    if index == len(arguments) or index > 3:
        raise check.type_error(
            "calcLoss lacks a LossType, or has too many tensors before it",
            "give deltasScale and modelOutputScaling, numCorrect, or all three, then the LossType",
        )
    return tensors, arguments[index], arguments[index + 1 :]


@check.guard
def calcAccuracy(
    graph: Graph, modelOutputs: Tensor, expected: Tensor, numCorrect: Tensor, *rest: Any
) -> Sequence:
    """Returns a program that adds to a tensor in how many rows the label's output is the largest.

    Args:
      graph: the graph.
      modelOutputs: [batch, classes].
      expected: labels [batch]; a masked one is none of the right answers.
      numCorrect: a tensor of one element, which is updated.
      *rest: a name and options, which change nothing.
    """
    if modelOutputs.rank() != 2 or expected.shape() != modelOutputs.shape()[:1]:
        raise index_error(
            f"the accuracy of {modelOutputs} and {expected}",
            where=user_line(),
            fix="give [batch, classes] and labels [batch]",
        )

    def compute(outputs: jax.Array, expected: jax.Array, count: jax.Array) -> jax.Array:
        answers = jnp.argmax(outputs, axis=-1).astype(jnp.int32)
        right = (answers == _as_labels(expected)).sum()
        return count + right.astype(count.dtype)

    prog, title = Sequence(), read_title("calcAccuracy", rest)
    operands = [modelOutputs, expected, numCorrect]
    add_planned(graph, prog, title, compute, operands, outs=[numCorrect])
    return prog


def _as_labels(expected: jax.Array) -> jax.Array:
    return expected.astype(jnp.int32)


def _one_hot(expected: jax.Array, outputs: jax.Array) -> jax.Array:
    return jax.nn.one_hot(_as_labels(expected), outputs.shape[1], dtype=outputs.dtype)
