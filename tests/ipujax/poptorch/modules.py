"""Small modules, and their training by PyTorch itself, for tests of the wrappers."""

from __future__ import annotations

from typing import Any

import torch


class Regression(torch.nn.Module):
    """Two layers and a mean squared error."""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.reduction = reduction

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = self.last(torch.tanh(self.first(x)))
        return y, torch.nn.functional.mse_loss(y, target, reduction=self.reduction)


class Counting(torch.nn.Module):
    """Adds what it is given to a buffer."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return self.total * 1


def batch(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """An input and a target of `Regression`, always the same."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator)
