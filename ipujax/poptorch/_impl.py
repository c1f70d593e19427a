"""The private functions of the original's `poptorch._impl` that public programs call."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.poptorch.poptorch_checks import check


def isDispatchTracing() -> bool:
    """Returns False: new tensors never need a device "ipu", which PyTorch does not have here."""
    return False


def _restoreWrapperIfNecessary(obj: object) -> Any:  # pyright: ignore[reportUnusedFunction]
    """Returns an object as it is: files and copies of modules hold no wrapper here."""
    return obj


def unwrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Leaves a module as it is: modules and their variables have no wrappers here."""


def rewrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Leaves a module as it is: modules and their variables have no wrappers here."""


def internal_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Casts a tensor to float32 or float16.

    Raises:
      Error: (a `ValueError`) the dtype is neither float32 nor float16.
    """
    if dtype not in (torch.float32, torch.float16):
        raise check.wrong_type_error(
            "torch.float or torch.half", dtype, "the target of internal_cast"
        )
    return tensor.to(dtype)
