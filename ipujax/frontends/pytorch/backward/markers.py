"""Operators that mark where a backward pass of the user's begins and ends in a trace.

A trace has, one after the other: `enter`, the forward pass, `gradients`, the backward pass, and
`leave`. All that belong together have the same number. `hooked` ends the hook of a tensor, which
has no forward pass; `place_hooks` gives it the other form.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import has_side_effect

_NAMESPACE = "ipujax_backward"
_numbers = itertools.count()

Tensors = Sequence[torch.Tensor]


def _copies(tensors: Tensors, *_: Any) -> list[torch.Tensor]:
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
    torch.library.register_fake(f"{_NAMESPACE}::{_name}")(_copies)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError("torch.autograd.grad through a backward pass of the user's own")


# With these, results require gradients wherever operands do.
torch.library.register_autograd(f"{_NAMESPACE}::enter", _refuse)
torch.library.register_autograd(f"{_NAMESPACE}::leave", _refuse)

OPERATORS: Any = getattr(torch.ops, _NAMESPACE)
HOOKED, GRADIENTS = OPERATORS.hooked.default, OPERATORS.gradients.default
ENTER, LEAVE = OPERATORS.enter.default, OPERATORS.leave.default

# What nothing reads yet must not be removed before `place_hooks` has seen it.
has_side_effect(HOOKED)


def new_number() -> int:
    """The number of another backward pass."""
    return next(_numbers)


def enter(inputs: Tensors, number: int) -> list[torch.Tensor]:
    """The inputs of a function, as its forward pass sees them."""
    return OPERATORS.enter(list(inputs), number)


def gradients_of(outputs: Tensors, number: int) -> list[torch.Tensor]:
    """The gradients of a function's outputs, which its backward pass is given."""
    return OPERATORS.gradients(list(outputs), number)


def leave(
    outputs: Tensors,
    inputs: Tensors,
    gradients: Sequence[torch.Tensor | None],
    number: int,
    *,
    is_once: bool = False,
) -> list[torch.Tensor]:
    """A function's outputs, as all others see them.

    Args:
      outputs: of the forward pass.
      inputs: what `enter` gave.
      gradients: what the backward pass gave, one for each input; None for no gradient.
      number: of the backward pass.
      is_once: whether the backward pass has no derivative.
    """
    positions = [i for i, gradient in enumerate(gradients) if gradient is not None]
    given = [gradient for gradient in gradients if gradient is not None]
    return OPERATORS.leave(list(outputs), list(inputs), given, positions, is_once, number)


def hook(
    tensors: Tensors, gradients: Sequence[torch.Tensor | None], number: int
) -> list[torch.Tensor]:
    """Tensors whose gradients a hook has changed to those given; None for no gradient."""
    positions = [i for i, gradient in enumerate(gradients) if gradient is not None]
    given = [gradient for gradient in gradients if gradient is not None]
    return OPERATORS.hooked(list(tensors), given, positions, number)
