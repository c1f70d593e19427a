"""Steps on the host of those optimizers that torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Change = Callable[[torch.Tensor, torch.Tensor, Mapping[str, Any]], None]


@torch.no_grad()
def stepped(
    optimizer: torch.optim.Optimizer, change: Change, closure: Callable[[], float] | None
) -> float | None:
    """One step; gives what the closure gives, if there is one.

    Args:
      optimizer: whose parameters are changed.
      change: changes a parameter in place; it is given its gradient, and its group's settings.
      closure: computes loss and gradients.
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


def direction(
    state: dict[str, Any], gradient: torch.Tensor, group: Mapping[str, Any], corrects: bool
) -> torch.Tensor:
    """Adam's direction, without weight decay; the state keeps the moments.

    Args:
      state: of the parameter.
      gradient: of it.
      group: its settings.
      corrects: whether moments over few steps are made larger.
    """
    (first_rate, second_rate), count = group["betas"], int(state.get("step", 0)) + 1
    zeros = torch.zeros_like(gradient)
    first = torch.lerp(state.get("exp_avg", zeros), gradient, 1 - first_rate)
    second = second_rate * state.get("exp_avg_sq", zeros) + (1 - second_rate) * gradient**2
    state.update(step=torch.tensor(float(count)), exp_avg=first, exp_avg_sq=second)
    if group.get("amsgrad"):
        second = torch.maximum(state.get("max_exp_avg_sq", zeros), second)
        state["max_exp_avg_sq"] = second
    if corrects:
        first, second = first / (1 - first_rate**count), second / (1 - second_rate**count)
    return first / (second.sqrt() + group["eps"])
