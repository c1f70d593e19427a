"""Functions of the original's insides that its programs call."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.poptorch.checks import check


def isDispatchTracing() -> bool:
    """Whether new tensors must be made on a device "ipu": never, there is none for PyTorch."""
    return False


def _restoreWrapperIfNecessary(obj: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
    """What a file's object is: itself, as files and copies of modules hold nothing of ours."""
    return obj


def internal_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in another dtype.

    Raises:
      Error: (a `ValueError`) it is neither float32 nor float16.
    """
    if dtype not in (torch.float32, torch.float16):
        raise check.other_than("torch.float or torch.half", dtype, "the target of internal_cast")
    return tensor.to(dtype)
