"""An optimizer's state and numbers under the names that PopART gives them, with the variables'."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import torch

_MOMENTS = {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "max_exp_avg_sq": "Accl3", "step": "Step"}
_SLOTS = {
    "SGD": {"momentum_buffer": "Accl1", "step": "Step"},
    "RMSprop": {
        "square_avg": "Accl1",
        "grad_avg": "Accl2",
        "momentum_buffer": "Accl3",
        "step": "Step",
    },
}

_NUMBERS = {
    "lr": "learningRate",
    "weight_decay": "weightDecay",
    "momentum": "momentum",
    "beta1": "beta1",
    "beta2": "beta2",
    "alpha": "alpha",
    "eps": "eps",
    "max_weight_norm": "maxWeightNorm",
}


def state_name(kind: str, slot: str, variable: str) -> str:
    """The name of what an optimizer of a kind keeps of a variable in a slot."""
    return f"{_SLOTS.get(kind, _MOMENTS)[slot]}___{variable}"


def parameters(
    kind: str, groups: Mapping[str, Mapping[str, float]], loss_scaling: float
) -> dict[str, torch.Tensor]:
    """The numbers that an optimizer works with.

    Args:
      kind: of the optimizer.
      groups: the numbers of each variable's group, by the variable's name.
      loss_scaling: of the optimizer.
    """
    named = {"lossScaling_FLOAT": loss_scaling}
    for variable, numbers in groups.items():
        own = {_NUMBERS[name]: value for name, value in numbers.items() if name in _NUMBERS}
        if kind == "SGD":
            rate, decay = own.pop("learningRate"), own.pop("weightDecay")
            own["scaledLearningRate0"] = rate * numbers["taken"] / loss_scaling
            own["weightDecayScaleFactor0"] = 1 - rate * numbers["taken"] * decay
        named.update({f"{name}___specific___{variable}": own[name] for name in own})
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in named.items()}


def state(
    kind: str,
    kept: Mapping[str, Mapping[str, jax.Array]],
    tensor: Callable[[jax.Array], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """What an optimizer keeps.

    Args:
      kind: of the optimizer.
      kept: arrays by slot, by the variable's name.
      tensor: makes a tensor of an array.
    """
    return {
        state_name(kind, slot, variable): tensor(array)
        for variable, slots in kept.items()
        for slot, array in slots.items()
    }
