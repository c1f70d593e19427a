"""The names that PopART gives to an optimizer's state and numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ipujax.doors.graphs import NAMES_ON_IPU, Slot


def name_slot(slot: Slot, variable: str) -> str:
    """Returns the name of what an optimizer keeps of a variable in a slot."""
    return f"Accl{slot.number}___{variable}" if slot.number else f"Step___{variable}"


def name_numbers_for_popart(
    kind: str, groups: Mapping[str, Mapping[str, float]], loss_scaling: float
) -> dict[str, torch.Tensor]:
    """Returns the numbers of an optimizer as tensors under PopART's names.

    Args:
      kind: the name of the optimizer's class.
      groups: the numbers of each variable's group, by the variable's name.
      loss_scaling: the loss scaling of the optimizer.
    """
    values_by_name = {"lossScaling_FLOAT": loss_scaling}
    for variable, numbers in groups.items():
        popart_numbers = {
            NAMES_ON_IPU[name]: value for name, value in numbers.items() if name in NAMES_ON_IPU
        }
        if kind == "SGD":
            rate, decay = popart_numbers.pop("learningRate"), popart_numbers.pop("weightDecay")
            popart_numbers["scaledLearningRate0"] = rate * numbers["taken"] / loss_scaling
            popart_numbers["weightDecayScaleFactor0"] = 1 - rate * numbers["taken"] * decay
        values_by_name.update(
            {f"{name}___specific___{variable}": popart_numbers[name] for name in popart_numbers}
        )
    return {
        name: torch.tensor(value, dtype=torch.float32) for name, value in values_by_name.items()
    }
