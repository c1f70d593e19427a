"""Modules with complex values and complex parameters, whose training is that of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ipujax import poptorch

WIDTH = 8
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
}


class Spectral(torch.nn.Module):
    """A filter of frequencies between two layers; each half in a block of its own."""

    def __init__(self, is_cut: bool, is_complex: bool = True):
        super().__init__()
        self.before, self.after = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)
        dtype = torch.complex64 if is_complex else torch.float32
        self.filter = torch.nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=dtype))
        self.is_cut = is_cut

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        spectrum = torch.fft.rfft(self.before(x)) * self.filter
        if self.is_cut:
            poptorch.Block.start("second", ipu_id=1)
        out = self.after(torch.tanh(torch.fft.irfft(spectrum, n=WIDTH)))
        return out, ((out - y) ** 2).mean()


def check_training(module: Spectral, optimizer: Callable[[Any], Any]) -> Any:
    """Two steps here and in PyTorch; gives the optimizers of both."""
    plain = copy.deepcopy(module)
    plain.is_cut = False
    ours, theirs = optimizer(module.parameters()), optimizer(plain.parameters())
    options = poptorch.Options()
    if module.is_cut:
        options.Training.gradientAccumulation(4)
    model = poptorch.trainingModel(module, options, optimizer=ours)
    x, y = torch.randn(4, WIDTH), torch.randn(4, 1)
    for _ in range(2):
        model(x, y)
        theirs.zero_grad()
        plain(x, y)[1].backward()
        theirs.step()
    model.copyWeightsToHost()
    for mine, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=2e-5)
    return ours, theirs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_complex_parameters_train_as_in_pytorch(name: str, is_cut: bool) -> None:
    torch.manual_seed(0)
    check_training(Spectral(is_cut), OPTIMIZERS[name])


def test_real_parameters_behind_complex_values() -> None:
    torch.manual_seed(1)
    check_training(Spectral(is_cut=True, is_complex=False), OPTIMIZERS["sgd"])


def test_what_is_kept_of_them_is_complex_as_in_pytorch() -> None:
    torch.manual_seed(2)
    ours, theirs = check_training(Spectral(is_cut=False), OPTIMIZERS["adam"])
    mine, other = (o.state_dict()["state"] for o in (ours, theirs))
    assert mine.keys() == other.keys()
    for place, kept in mine.items():
        for name, value in kept.items():
            torch.testing.assert_close(
                value, other[place][name], rtol=1e-4, atol=1e-5, check_dtype=name != "step"
            )
