"""What is random in pipelines of several replicas."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402

REPLICAS, ITERATIONS, ACCUMULATION, WIDTH = 2, 2, 3, 64


class Masks(torch.nn.Module):
    """Two masks, on an IPU each, and a loss whose gradient is their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(WIDTH))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        with poptorch.Block("first", ipu_id=0):
            first = self.drop(x)
            y = first * self.weight
        with poptorch.Block("second", ipu_id=1):
            second = self.drop(x)
            return first, second, poptorch.identity_loss(y + second * self.weight, "sum")


def test_each_micro_batch_of_each_replica_has_masks_of_its_own() -> None:
    module = Masks()
    options = poptorch.Options().replicationFactor(REPLICAS).deviceIterations(ITERATIONS)
    options.outputMode(poptorch.OutputMode.All).randomSeed(7)
    options.Training.gradientAccumulation(ACCUMULATION)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    training = poptorch.trainingModel(module, options, optimizer)
    x = torch.ones(REPLICAS * ITERATIONS * ACCUMULATION, WIDTH)
    masks = []
    for _ in range(2):
        first, second, _ = training(x)
        masks += [*first, *second]
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 2 * 2 * len(x)
    assert all(set(mask.tolist()) == {0.0, 2.0} for mask in masks)
    # The backward pass has the masks of the forward pass; an update takes the micro-batches' mean.
    sums = torch.stack(masks).sum(0) / (REPLICAS * ACCUMULATION)
    torch.testing.assert_close(module.weight.detach(), -sums)
