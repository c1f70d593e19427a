"""The helpers for tests of models."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.poptorch.poptorch_checks import check


def allclose(ref: Any, other: Any) -> bool:
    """Returns whether tensors, or lists or tuples of them, have equal shapes and close values.

    Raises:
      PopTorchTypeError: (a `TypeError`) `ref` is neither a tensor, a list nor a tuple.
    """
    if isinstance(ref, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.allclose(other, ref)
    check.require_instance(ref, list | tuple, "ref", "a tensor, a list or a tuple")
    if not isinstance(other, type(ref)) or len(ref) != len(other):
        return False
    return all(allclose(reference, value) for reference, value in zip(ref, other, strict=True))
