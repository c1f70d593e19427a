"""Selection of the tensors that have gradients in a trace."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch


class BackwardUse(enum.Enum):
    """The values of a traced module whose gradients are computed."""

    NONE = "none"
    PARAMETERS = "parameters"
    ALL = "parameters and inputs"


def find_differentiable(values: Sequence[object], use: BackwardUse) -> tuple[bool, ...]:
    """Returns for each value whether it is a tensor that may have a gradient.

    Inputs of a model do not require gradients in the trace, and neither do values computed from
    them: where gradients of inputs are computed, any float or complex tensor may have one.
    """
    if use is BackwardUse.NONE:
        return tuple(False for _ in values)
    return tuple(
        isinstance(value, torch.Tensor)
        and (value.requires_grad or (use is BackwardUse.ALL and is_inexact(value)))
        for value in values
    )


def is_inexact(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor holds floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()
