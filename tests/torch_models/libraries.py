"""Libraries of models, imported."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch


@functools.cache
def torchvision() -> Any:
    """The library, imported; other libraries import it, too.

    What goes with CPU builds of PyTorch may be a build for CUDA, which then looks for operators
    that its own kernels would have brought.
    """
    _declare()
    return importlib.import_module("torchvision")


@functools.cache
def _declare() -> torch.library.Library:
    """Declares these operators; they go with the object that is returned."""
    declared = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            declared.define(f"{name}{signature}")
    return declared


@functools.cache
def transformers() -> Any:
    """Hugging Face's library, imported."""
    torchvision()
    return importlib.import_module("transformers")


@functools.cache
def timm() -> Any:
    """The library, imported."""
    torchvision()
    return importlib.import_module("timm")
