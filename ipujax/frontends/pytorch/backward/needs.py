"""Which tensors have gradients in a trace."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import torch


class BackwardUse(enum.Enum):
    """Whose gradients are wanted of a traced module."""

    NONE = "none"
    PARAMETERS = "parameters"
    ALL = "parameters and inputs"


def is_differentiable(values: Sequence[Any], use: BackwardUse) -> tuple[bool, ...]:
    """Of each value, whether it is a tensor that may have a gradient.

    Inputs of a model do not say that they require gradients, and neither does what is made of them:
    where theirs are wanted, any tensor of floats or complex numbers may.
    """
    if use is BackwardUse.NONE:
        return tuple(False for _ in values)
    return tuple(
        isinstance(value, torch.Tensor)
        and (value.requires_grad or (use is BackwardUse.ALL and is_inexact(value)))
        for value in values
    )


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are of a kind that has gradients."""
    return tensor.is_floating_point() or tensor.is_complex()
