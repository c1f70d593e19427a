"""PopTorch's own operators: what they are for PyTorch, and what they compute."""

from __future__ import annotations

from typing import Any

import jax
import torch

from ipujax.frontends.graphs import Operators
from ipujax.frontends.pytorch.operators import ATEN

OPERATORS = Operators(ATEN)
"""The table of PyTorch's operators and PopTorch's."""

operator = OPERATORS.register

SUM, MEAN, NONE = 0, 1, 2
REDUCTIONS = {"sum": SUM, "mean": MEAN, "none": NONE}


@torch.library.custom_op("ipujax_poptorch::identity_loss", mutates_args=())
def identity_loss(x: torch.Tensor, reduction: int) -> torch.Tensor:
    """Marks a value as the loss, reduced in a way."""
    if reduction == NONE:
        return x.clone()
    return x.mean() if reduction == MEAN else x.sum()


@identity_loss.register_fake
def _(x: torch.Tensor, reduction: int) -> torch.Tensor:
    return torch.empty_like(x) if reduction == NONE else x.new_empty(())


def _save_shape(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.shape, ctx.reduction = inputs[0].shape, inputs[1]


def _spread(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    share = ctx.shape.numel() if ctx.reduction == MEAN else 1
    return gradient.expand(ctx.shape) / share, None


identity_loss.register_autograd(_spread, setup_context=_save_shape)


@operator("ipujax_poptorch.identity_loss.default")
def reduced(x: jax.Array, reduction: int) -> jax.Array:
    """What `identity_loss` gives."""
    if reduction == NONE:
        return x
    return x.mean() if reduction == MEAN else x.sum()
