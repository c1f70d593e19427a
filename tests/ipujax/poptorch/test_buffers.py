"""Buffers of wrapped modules: changed, replaced, updated from the host, and one on each replica."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from tests.ipujax.poptorch.modules import Counting  # noqa: E402


def test_only_the_buffers_that_are_named_are_updated() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones(1))
            self.register_buffer("two", torch.ones(1))

        def forward(self, x: Any) -> Any:
            return x + self.one + self.two

    options = poptorch.Options().updatableNamedBuffers(["one"])
    model = poptorch.inferenceModel(Sum(), options)
    assert model(torch.ones(1)) == 3
    model.one.add_(1)
    model.two.add_(1)
    model.copyNamedBuffersToDevice()
    assert model(torch.ones(1)) == 4
    without = poptorch.inferenceModel(Sum())
    without(torch.ones(1))
    with pytest.raises(poptorch.Error, match=r"Options.updatableNamedBuffers"):
        without.copyNamedBuffersToDevice()
    unknown = poptorch.inferenceModel(Sum(), poptorch.Options().updatableNamedBuffers(["three"]))
    with pytest.raises(poptorch.Error, match="no buffer three"):
        unknown(torch.ones(1))


@pytest.mark.parametrize("kind", ["buffer", "parameter"])
@pytest.mark.parametrize("replaces", [True, False])
def test_a_tensor_that_is_replaced_or_removed_is_named_and_stays(kind: str, replaces: bool) -> None:
    class Replacing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if kind == "buffer":
                self.register_buffer("y", torch.tensor([2.0]))
            else:
                self.y = torch.nn.Parameter(torch.tensor([2.0]))

        def forward(self, x: Any) -> Any:
            held = self._buffers if kind == "buffer" else self._parameters
            if replaces:
                held["y"] = x + 1
            else:
                del held["y"]
            return x

    module = Replacing()
    before = module.y
    what = "reassigned within" if replaces else "removed from"
    with pytest.raises(poptorch.Error, match=f"{kind.title()} y is {what} the model"):
        poptorch.inferenceModel(module)(torch.ones(1))
    assert module.y is before


def test_buffers_that_change_need_a_word_about_replicas() -> None:
    options = poptorch.Options().replicationFactor(2)
    with pytest.raises(poptorch.Error, match=r"Options.broadcastBuffers\(False\)"):
        poptorch.inferenceModel(Counting(), options)(torch.ones(4, 2))


@pytest.mark.exhaustive
def test_replicas_have_statistics_of_their_own() -> None:
    norm = torch.nn.BatchNorm1d(1).train()
    model = poptorch.inferenceModel(norm, poptorch.Options().replicationFactor(2))
    model(torch.tensor([[0.0], [2.0], [10.0], [20.0]]))
    model.copyWeightsToHost()
    assert torch.allclose(norm.running_mean, torch.tensor([0.1]))  # of the first two rows
    assert norm.num_batches_tracked == 1


def test_each_replica_has_its_own_buffers() -> None:
    options = poptorch.Options().replicationFactor(2).broadcastBuffers(False)
    model = poptorch.inferenceModel(Counting(), options)
    x = torch.tensor([[9.0, 1.0], [2.0, 3.0]])
    for calls in range(1, 4):
        assert torch.equal(model(x), x.reshape(-1) * calls)
    model.copyWeightsToHost()
    assert torch.equal(model.total, x[0] * 3)


class Remembering(torch.nn.Module):
    """Compares with what came before, which it keeps without gradients in its last block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.register_buffer("queue", torch.ones(4, 3))

    @torch.no_grad()
    def remember(self, x: Any) -> None:
        self.queue.copy_(torch.cat([x, self.queue[:2]]))

    def forward(self, x: Any) -> Any:
        x = self.second(torch.tanh(self.first(x)))
        x = x / x.norm(dim=1, keepdim=True)
        before = self.queue.clone()
        self.remember(x)
        loss = (x @ before.t()).square().mean() + (x * self.queue[:2]).mean()
        return poptorch.identity_loss(loss, reduction="mean")


def test_what_a_block_does_without_gradients_is_in_that_block() -> None:
    torch.manual_seed(0)
    module = Remembering()
    eager = copy.deepcopy(module)
    poptorch.BeginBlock(module.first, ipu_id=0)
    poptorch.BeginBlock(module.second, ipu_id=1)
    options = poptorch.Options()
    options.Training.gradientAccumulation(3)
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.randn(6, 3)
    poptorch.trainingModel(module, options, optimizer=optimizer)(x)

    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for rows in x.split(2):
        (eager(rows) / 3).backward()
    optimizer.step()
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)
