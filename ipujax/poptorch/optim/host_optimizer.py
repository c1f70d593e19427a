"""The steps on the host of optimizers that torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Change = Callable[[torch.Tensor, torch.Tensor, Mapping[str, Any]], None]


@torch.no_grad()
def step_on_host(
    optimizer: torch.optim.Optimizer, change: Change, closure: Callable[[], float] | None
) -> float | None:
    """Steps all parameters of an optimizer on the host; returns the closure's result, if any.

    Args:
      optimizer: the optimizer whose parameters are stepped.
      change: a function that changes a parameter in place, given its gradient and its group.
      closure: a function that computes loss and gradients.
    """
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                sign = -1 if group.get("maximize") else 1
                change(parameter, sign * parameter.grad, group)
    return loss


def compute_adam_direction(
    state: dict[str, Any], gradient: torch.Tensor, group: Mapping[str, Any], corrects_bias: bool
) -> torch.Tensor:
    """Computes Adam's direction without weight decay, and updates the moments in the state.

    Args:
      state: the state of the parameter.
      gradient: the gradient of the parameter.
      group: the settings of its parameter group.
      corrects_bias: whether to correct the bias of the moments.
    """
    (first_rate, second_rate), count = group["betas"], int(state.get("step", 0)) + 1
    zeros = torch.zeros_like(gradient)
    first = torch.lerp(state.get("exp_avg", zeros), gradient, 1 - first_rate)
    second = second_rate * state.get("exp_avg_sq", zeros) + (1 - second_rate) * gradient**2
    state.update(step=torch.tensor(float(count)), exp_avg=first, exp_avg_sq=second)
    if group.get("amsgrad"):
        second = torch.maximum(state.get("max_exp_avg_sq", zeros), second)
        state["max_exp_avg_sq"] = second
    if corrects_bias:
        first, second = first / (1 - first_rate**count), second / (1 - second_rate**count)
    return first / (second.sqrt() + group["eps"])
