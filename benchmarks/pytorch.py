"""PyTorch's modules through PopTorch's wrappers, against PyTorch itself on as many processors."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

from benchmarks import pytorch_calls
from benchmarks.measure import Row, row

THREADS = 2
TOKENS, WORDS, WIDTH, BATCH = 64, 512, 128, 8
MISSING = "left out: the rows of PyTorch; to have them, `pip install 'ipujax[torch]'`"


def rows() -> list[Row]:
    """Training steps, an inference call, and what conversion takes."""
    if importlib.util.find_spec("torch") is None:
        print(MISSING, file=sys.stderr)
        return []
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    transformer, sentences = _transformer(), _sentences()
    resnet, images = _resnet(), _images()
    training = _training(transformer, sentences)
    found = [
        row(
            "pytorch: training step of a 4-layer transformer / torch eager, 2 threads",
            0.9,
            training,
            _eager(transformer, sentences),
            pairs=9,
        ),
        row(
            "pytorch: training step of ResNet-18 / torch eager, 2 threads",
            1.0,
            _training(resnet, images),
            _eager(resnet, images),
            pairs=7,
        ),
        *_against_compiled(training, transformer, sentences),
        *pytorch_calls.rows(),
    ]
    return [*found, *_conversions(transformer, sentences, "a 4-layer transformer"),
            *_conversions(resnet, images, "ResNet-18")]  # fmt: skip


def _training(module: Any, batch: tuple[Any, ...]) -> Callable[[], Any]:
    """A step of a wrapper, with the loss on the host."""
    import torch

    from ipujax import poptorch

    own = copy.deepcopy(module)
    step = poptorch.trainingModel(own, optimizer=torch.optim.SGD(own.parameters(), lr=1e-3))
    return lambda: step(*batch)


def _eager(
    module: Any, batch: tuple[Any, ...], transform: Callable[[Any], Any] | None = None
) -> Callable[[], Any]:
    """The same step of PyTorch's, of the module or of a function made of it."""
    import torch

    own = copy.deepcopy(module).train()
    forward = own if transform is None else transform(own)
    optimizer = torch.optim.SGD(own.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = forward(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _against_compiled(training: Any, module: Any, batch: tuple[Any, ...]) -> list[Row]:
    """The row against `torch.compile`, which needs a compiler of C++."""
    import torch

    step = _eager(module, batch, torch.compile)
    try:
        step()
    except Exception as error:
        print(f"left out: the row against torch.compile: {type(error).__name__}", file=sys.stderr)
        return []
    what = "pytorch: training step of a 4-layer transformer / torch.compile, 2 threads"
    return [row(what, 1.1, training, step, pairs=9)]


def _conversions(module: Any, batch: tuple[Any, ...], what: str) -> list[Row]:
    """What follows after `torch.export`, as far as a lowered program, against that itself."""
    import jax
    import torch

    import ipujax as ipu

    own = copy.deepcopy(module).train()
    export = torch.export.export
    program = export(own, batch, {}, strict=False)
    arrays = [jax.numpy.asarray(tensor.numpy()) for tensor in batch]

    def converted() -> Any:
        with mock.patch.object(torch.export, "export", return_value=program):
            model = ipu.frontends.from_torch(own, batch)

        def forward(variables: Any, *inputs: Any) -> Any:
            return model.apply(variables, *inputs, key=jax.random.key(0))

        return ipu.compile(forward).lower(model.variables, *arrays)

    def exported() -> Any:
        return export(own, batch, {}, strict=False)

    title = f"pytorch: conversion and lowering of {what} / torch.export of it"
    return [row(title, 0.5, converted, exported, pairs=5)]


def _sentences() -> tuple[Any, ...]:
    import torch

    shape = (BATCH, TOKENS)
    return torch.randint(WORDS, shape), torch.randint(WORDS, shape)


def _images() -> tuple[Any, ...]:
    import torch

    return torch.randn(BATCH, 3, 64, 64), torch.randint(10, (BATCH,))


def _transformer() -> Any:
    """An encoder that predicts words, and its loss."""
    import torch
    from torch import nn

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, WORDS)

        def forward(self, words: Any, labels: Any) -> Any:
            scores = self.head(self.encoder(self.words(words)))
            return torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    return Transformer()


def _resnet() -> Any:
    """ResNet-18 for small images, and its loss."""
    import torch
    from torch import nn

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.residual = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                    nn.BatchNorm2d(outputs),
                    nn.ReLU(),
                    nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                    nn.BatchNorm2d(outputs),
                )
                same = inputs == outputs and stride == 1
                self.shortcut = nn.Identity() if same else nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )  # fmt: skip

            def forward(self, x: Any) -> Any:
                return torch.relu(self.residual(x) + self.shortcut(x))

        return Block()

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            layers = [stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            inputs = 64
            for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                layers += [block(inputs, outputs, stride), block(outputs, outputs, 1)]
                inputs = outputs
            head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
            self.layers = nn.Sequential(*layers, *head)

        def forward(self, images: Any, labels: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.layers(images), labels)

    return ResNet()
