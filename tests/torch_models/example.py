"""A model to compare, with its inputs and its loss."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

CLASSES, BATCH = 10, 4

Build = Callable[[], "Example"]
"""Makes an example, with PyTorch's random numbers."""


@dc.dataclass(frozen=True, eq=False)
class Example:
    """A model and what to call it with.

    Attributes:
      module: gives a dictionary when it is called with the inputs; with a `loss`, if it is trained.
      inputs: by keyword.
      train: whether to compare its training, too.
    """

    module: nn.Module
    inputs: Mapping[str, Any]
    train: bool = True


class WithLoss(nn.Module):
    """A model of images with a loss of whatever tensors it gives."""

    def __init__(self, model: nn.Module, criterion: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        outputs = [leaf for leaf in pytree.tree_leaves(self.model(images)) if leaf is not None]
        losses = [self.criterion(output, labels) for output in outputs]
        return {"outputs": outputs, "loss": torch.stack(losses).sum()}


def shortened(model: nn.Module) -> nn.Module:
    """The model with one of each run of blocks that are alike, in place.

    Deep members of a family have the layers of its shallow ones more often. Alike are neighbours
    in a sequence of one class whose parameters have the same shapes.
    """
    for sequence in [module for module in model.modules() if isinstance(module, nn.Sequential)]:
        blocks = list(sequence.named_children())
        for (_, one), (name, next_one) in itertools.pairwise(blocks):
            if any(True for _ in one.children()) and _form(one) == _form(next_one):
                delattr(sequence, name)
    return model


def _form(module: nn.Module) -> tuple[Any, ...]:
    return type(module), [(name, value.shape) for name, value in module.state_dict().items()]


def squares(features: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
    """A loss for models that give features."""
    return features.square().mean()


def classifier(model: nn.Module, size: int, batch: int = BATCH) -> Example:
    """A model that classifies images of so many pixels a side."""
    inputs = {"images": images(size, batch), "labels": torch.randint(CLASSES, (batch,))}
    return Example(WithLoss(model, nn.functional.cross_entropy), inputs)


def segmenter(model: nn.Module, size: int, batch: int = BATCH) -> Example:
    """A model that classifies their pixels."""
    labels = torch.randint(CLASSES, (batch, size, size))
    inputs = {"images": images(size, batch), "labels": labels}
    return Example(WithLoss(model, nn.functional.cross_entropy), inputs)


def backbone(model: nn.Module, size: int, batch: int = BATCH) -> Example:
    """A model that gives features."""
    inputs = {"images": images(size, batch), "labels": torch.zeros(batch)}
    return Example(WithLoss(model, squares), inputs)


def images(size: int, batch: int = BATCH) -> torch.Tensor:
    """Square images of noise."""
    return torch.randn(batch, 3, size, size)


def prepared(build: Build, seed: int) -> Example:
    """An example from a seed, without dropout, and without zeros that hide errors.

    Many models begin with layers of zeros, behind which there are no gradients, or with factors
    near zero: all parameters get a little noise, and moving statistics are no longer 0 and 1.
    """
    torch.manual_seed(seed)
    example = build()
    with torch.no_grad():
        for parameter in example.module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
        for name, buffer in example.module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    for module in example.module.modules():
        _without_dropout(module)
    return example


def _without_dropout(module: nn.Module) -> None:
    """Sets what a module may call the probability that it drops values."""
    names = ["drop_prob", "layerdrop"]
    if "Dropout" in type(module).__name__ or type(module).__name__ == "StochasticDepth":
        names.append("p")
    if isinstance(module, nn.MultiheadAttention):
        names.append("dropout")
    for name in names:
        if isinstance(getattr(module, name, None), float):
            setattr(module, name, 0.0)
