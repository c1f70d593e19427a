"""Operators that mark where a user-written backward pass begins and ends in a trace.

A trace contains, in this order: the operator `enter`, the forward pass, `gradients`, the backward
pass, and `leave`, all with the same number. The operator `hooked` ends the hook of a tensor, which
has no forward pass; `place_hooks` rewrites it to the first form.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.fx.node import has_side_effect

_NAMESPACE = "ipujax_backward"
_numbers = itertools.count()

Tensors = Sequence[torch.Tensor]


def _empty_copies(tensors: Tensors, *_: object) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in tensors]


for _schema in (
    "enter(Tensor[] inputs, int number) -> Tensor[]",
    "gradients(Tensor[] outputs, int number) -> Tensor[]",
    "leave(Tensor[] outputs, Tensor[] inputs, Tensor[] gradients, int[] positions, bool is_once, "
    "int number) -> Tensor[]",
    "hooked(Tensor[] tensors, Tensor[] gradients, int[] positions, int number) -> Tensor[]",
):
    _name = _schema.partition("(")[0]
    torch.library.define(f"{_NAMESPACE}::{_name}", _schema.removeprefix(_name))
    torch.library.register_fake(f"{_NAMESPACE}::{_name}")(_empty_copies)


def _refuse_nested_autograd(*_: object) -> NoReturn:
    raise NotImplementedError("torch.autograd.grad through a backward pass of the user's own")


# Registered so that results require gradients wherever operands do.
torch.library.register_autograd(f"{_NAMESPACE}::enter", _refuse_nested_autograd)
torch.library.register_autograd(f"{_NAMESPACE}::leave", _refuse_nested_autograd)

OPERATORS: Any = getattr(torch.ops, _NAMESPACE)
HOOKED, GRADIENTS = OPERATORS.hooked.default, OPERATORS.gradients.default
ENTER, LEAVE = OPERATORS.enter.default, OPERATORS.leave.default

# Unread `hooked` nodes must survive until `place_hooks` has rewritten them.
has_side_effect(HOOKED)


def new_backward_number() -> int:
    """Returns the number of a new backward pass."""
    return next(_numbers)


def mark_inputs(inputs: Tensors, number: int) -> list[torch.Tensor]:
    """Marks a function's inputs and returns them as its forward pass sees them."""
    return OPERATORS.enter(list(inputs), number)


def mark_output_gradients(outputs: Tensors, number: int) -> list[torch.Tensor]:
    """Returns the gradients of a function's outputs, which its backward pass takes."""
    return OPERATORS.gradients(list(outputs), number)


def mark_outputs(
    outputs: Tensors,
    inputs: Tensors,
    gradients: Sequence[torch.Tensor | None],
    number: int,
    *,
    is_once: bool = False,
) -> list[torch.Tensor]:
    """Marks a function's outputs and returns them as operators outside of it see them.

    Args:
      outputs: the outputs of the forward pass.
      inputs: the results of `mark_inputs`.
      gradients: the results of the backward pass, one for each input; None for no gradient.
      number: the number of the backward pass.
      is_once: whether the backward pass has no derivative.
    """
    positions = [i for i, gradient in enumerate(gradients) if gradient is not None]
    present_gradients = [gradient for gradient in gradients if gradient is not None]
    return OPERATORS.leave(
        list(outputs), list(inputs), present_gradients, positions, is_once, number
    )


def mark_hooked_tensors(
    tensors: Tensors, gradients: Sequence[torch.Tensor | None], number: int
) -> list[torch.Tensor]:
    """Marks tensors with the gradients that a hook has given them; None for no gradient."""
    positions = [i for i, gradient in enumerate(gradients) if gradient is not None]
    present_gradients = [gradient for gradient in gradients if gradient is not None]
    return OPERATORS.hooked(list(tensors), present_gradients, positions, number)
