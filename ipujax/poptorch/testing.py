"""Helpers for tests of models."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.poptorch.checks import check


def allclose(ref: Any, other: Any) -> bool:
    """Whether two tensors, or lists or tuples of them, have the same form and nearly equal values.

    Raises:
      PopTorchTypeError: (a `TypeError`) the first one is nothing of this.
    """
    if isinstance(ref, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.allclose(other, ref)
    check.instance(ref, list | tuple, "ref", "a tensor, a list or a tuple")
    if not isinstance(other, type(ref)) or len(ref) != len(other):
        return False
    return all(allclose(one, two) for one, two in zip(ref, other, strict=True))
