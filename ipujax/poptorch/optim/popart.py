"""An optimizer's state and numbers under the names that PopART gives them, with the variables'."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ipujax.doors.graphs.optimizers import NAMES_ON_IPU, Slot


def name_slot(slot: Slot, variable: str) -> str:
    """Returns the name of what an optimizer keeps of a variable in a slot."""
    return f"Accl{slot.number}___{variable}" if slot.number else f"Step___{variable}"


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
        own = {NAMES_ON_IPU[name]: value for name, value in numbers.items() if name in NAMES_ON_IPU}
        if kind == "SGD":
            rate, decay = own.pop("learningRate"), own.pop("weightDecay")
            own["scaledLearningRate0"] = rate * numbers["taken"] / loss_scaling
            own["weightDecayScaleFactor0"] = 1 - rate * numbers["taken"] * decay
        named.update({f"{name}___specific___{variable}": own[name] for name in own})
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in named.items()}
