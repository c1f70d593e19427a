"""Backward passes of the user's own in training: stages, replicas, accumulation, recomputation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.autograd import Function

from ipujax import poptorch


class Reversed(Function):
    """The gradient reversal of domain-adversarial networks."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0].neg() * ctx.factor, None


class Quantized(Function):
    """The nearest of a codebook's vectors, and the gradient straight through."""

    @staticmethod
    def forward(ctx: Any, x: Any, codebook: Any) -> Any:
        index = torch.cdist(x, codebook).argmin(1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index, codebook)
        return codebook[index], index

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        index, codebook = ctx.saved_tensors
        of_codebook = torch.zeros_like(codebook).index_add_(0, index, slopes[0])
        return slopes[0], of_codebook


class Adversarial(nn.Module):
    """An encoder, a codebook, and two heads, one behind a gradient reversal; with hooks."""

    def __init__(self, *, has_blocks: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.codebook = nn.Parameter(torch.randn(5, 4))
        self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        self.has_blocks = has_blocks
        self.encoder[0].weight.register_hook(lambda g: g.clamp(-0.05, 0.05))
        self.heads[0].register_full_backward_hook(lambda m, i, o: (i[0] * 2 + o[0].mean(),))

    def block(self, name: str, ipu: int) -> None:
        if self.has_blocks and poptorch.isRunningOnIpu():
            poptorch.Block.start(name, ipu_id=ipu)

    def forward(self, x: Any, y: Any, domain: Any) -> Any:
        self.block("first", 0)
        hidden = self.encoder(x)
        quantized, _ = Quantized.apply(hidden, self.codebook)
        if quantized.requires_grad:
            quantized.register_hook(lambda g: g * 1.5)
        self.block("second", 1)
        out = self.heads[0](quantized)
        other = self.heads[1](Reversed.apply(quantized, 0.7))
        loss = nn.functional.cross_entropy(out, y) + nn.functional.cross_entropy(other, domain)
        return out, poptorch.identity_loss(loss, reduction="none")


def trained_by_torch(module: nn.Module, batch: Any, steps: int, parts: int) -> nn.Module:
    """PyTorch's own training, with the mean of micro-batches' gradients."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True):
            module(*part)[1].backward()
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.grad /= parts  # hooks see the gradients of whole micro-batches
        optimizer.step()
    return module


CASES = {
    "alone": {},
    "accumulation": {"accumulation": 3},
    "replicas": {"replicas": 2},
    "pipeline": {"accumulation": 4, "has_blocks": True},
    "sharded": {"has_blocks": True, "is_sharded": True},
    "recomputation": {"accumulation": 4, "has_blocks": True, "recomputes": True},
}


@pytest.mark.parametrize("name", CASES)
def test_training_follows_the_users_backward(name: str) -> None:
    case: dict[str, Any] = CASES[name]
    module = Adversarial(has_blocks=case.get("has_blocks", False))
    accumulation, replicas = case.get("accumulation", 1), case.get("replicas", 1)
    parts = accumulation * replicas
    torch.manual_seed(1)
    batch = torch.randn(2 * parts, 3), *(torch.arange(2 * parts) % n == 0 for n in (2, 3))
    batch = batch[0], *(tensor.long() for tensor in batch[1:])
    wanted = trained_by_torch(Adversarial(has_blocks=False), batch, 2, parts)
    options = poptorch.Options().replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if case.get("is_sharded"):
        options.setExecutionStrategy(poptorch.ShardedExecution())
    if case.get("recomputes"):
        options._Popart.set("autoRecomputation", 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    training = poptorch.trainingModel(module, options, optimizer)
    for _ in range(2):
        training(*batch)
    theirs = wanted.state_dict()
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(value, theirs[key], 3e-5, 3e-5, err_msg=key)


class Losing(nn.Module):
    """Gives the loss of a torch loss function, behind a gradient reversal if asked."""

    def __init__(self, *, reverses: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(3, 2)
        self.reverses = reverses

    def forward(self, x: Any, y: Any) -> Any:
        out = self.layer(x)
        loss = nn.functional.cross_entropy(out, y)
        return out, Reversed.apply(loss, 0.5) if self.reverses else loss


def losing(*, reverses: bool, hooks: bool) -> Losing:
    module = Losing(reverses=reverses)
    if hooks:
        module.register_full_backward_pre_hook(
            lambda m, o: tuple(None if g is None else g * 3 for g in o)
        )
    return module


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.parametrize(("reverses", "hooks"), [(True, False), (False, True), (True, True)])
def test_what_stands_behind_the_loss_function_acts(reverses: bool, hooks: bool) -> None:
    module, plain = (losing(reverses=reverses, hooks=hooks) for _ in range(2))
    batch = torch.linspace(-1, 1, 12).reshape(4, 3), torch.arange(4) % 2
    wanted = trained_by_torch(plain, batch, 2, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    training = poptorch.trainingModel(module, poptorch.Options(), optimizer)
    for _ in range(2):
        training(*batch)
    theirs = wanted.state_dict()
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(value, theirs[key], 3e-5, 3e-5, err_msg=key)


class Untraceable(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] * ctx.saved_tensors[0].max().item()


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = Untraceable.apply(self.layer(x))
        return y, poptorch.identity_loss(y, reduction="mean")


def test_what_cannot_be_converted_runs_in_inference_and_is_refused_in_training() -> None:
    module, x = Doubling(), torch.ones(1, 2)
    out, _ = poptorch.inferenceModel(module)(x)
    torch.testing.assert_close(out, module.layer(x).detach() * 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"(?s)test_backward.py"):
        poptorch.trainingModel(module, poptorch.Options(), optimizer)(x)
