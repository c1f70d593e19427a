"""Optimizers in a wrapper: numbers of eager torch, `setOptimizer`, states, reductions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.poptorch import optim  # noqa: E402

T = torch.optim
X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.tensor([0, 1, 1, 0])


class Classifier(torch.nn.Module):
    """A linear one with its loss."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.loss = torch.nn.CrossEntropyLoss(reduction=reduction)

    def forward(self, x: Any, y: Any) -> Any:
        out = self.linear(x)
        return out, self.loss(out, y)


class Both:
    """The same module, trained by a wrapper and by eager torch."""

    def __init__(
        self, make: Any, options: Any = None, reduction: str = "mean", module: Any = Classifier
    ) -> None:
        torch.manual_seed(1)
        self.module = module(reduction)
        self.eager = copy.deepcopy(self.module)
        self.optimizer, self.reference = (make(m) for m in (self.module, self.eager))
        self.model: Any = poptorch.trainingModel(self.module, options, self.optimizer)

    def train(self, steps: int = 2) -> None:
        """Steps on both sides, with the whole batch."""
        for _ in range(steps):
            self.model(X, Y)
            self.reference.zero_grad()
            self.eager(X, Y)[1].backward()
            self.reference.step()

    def agree(self) -> None:
        """Whether both have the same weights."""
        for mine, theirs in zip(self.module.parameters(), self.eager.parameters(), strict=True):
            wanted = theirs.detach().numpy()
            np.testing.assert_allclose(mine.detach().numpy(), wanted, 1e-5, 1e-6)


def test_schedules_groups_and_states_are_those_of_torch() -> None:
    def make(module: Any) -> Any:
        bias: Any = {"params": [module.linear.bias], "lr": 0.5}
        return T.SGD([{"params": [module.linear.weight]}, bias], lr=0.1, momentum=0.9)

    both = Both(make)
    schedules = [T.lr_scheduler.ExponentialLR(o, 0.5) for o in (both.optimizer, both.reference)]
    both.train()
    executable = both.model.executable
    for schedule in schedules:
        schedule.step()
    both.model.setOptimizer(both.optimizer)
    both.train()
    both.agree()
    assert both.model.executable is executable
    kept, wanted = (o.state_dict()["state"] for o in (both.optimizer, both.reference))
    torch.testing.assert_close(kept[0]["momentum_buffer"], wanted[0]["momentum_buffer"])


def test_an_optimizer_of_another_kind_goes_on_from_the_trained_weights() -> None:
    both = Both(lambda m: T.SGD(m.parameters(), lr=0.1))
    both.train()
    both.optimizer = T.Adam(both.module.parameters(), lr=0.05)
    both.reference = T.Adam(both.eager.parameters(), lr=0.05)
    both.model.setOptimizer(both.optimizer)
    both.train()
    both.agree()
    assert both.optimizer.state_dict()["state"][0]["step"] == 2


def test_a_loss_scale_changes_nothing_and_may_change() -> None:
    both = Both(lambda m: optim.SGD(m.parameters(), lr=0.1, loss_scaling=64.0))
    both.train()
    both.optimizer.loss_scaling = 1.0
    both.model.setOptimizer(both.optimizer)
    both.train()
    both.optimizer.loss_scaling = 1024.0
    both.model.setOptimizer(both.optimizer)
    both.train()
    both.agree()


def test_a_loaded_state_is_trained_with_at_the_next_call() -> None:
    both = Both(lambda m: optim.Adam(m.parameters(), lr=0.05))
    assert both.optimizer.state_dict()["ipu_state"] is None
    both.model.compile(X, Y)
    first = both.optimizer.state_dict()
    assert not first["ipu_state"]["Accl1___linear.weight"].any()
    both.train(2)
    both.optimizer.load_state_dict(first)
    both.reference = T.Adam(both.eager.parameters(), lr=0.05)
    both.train(2)
    both.agree()
    assert both.optimizer.state_dict()["ipu_state"]["Step___linear.weight"] == 2


@pytest.mark.parametrize("reduction", [None, poptorch.ReductionType.Sum])
def test_micro_batches_are_reduced_as_the_options_say(reduction: Any) -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    if reduction is not None:
        options.Training.accumulationAndReplicationReductionType(reduction)
    both = Both(lambda m: T.SGD(m.parameters(), lr=0.1), options)
    if reduction is not None:  # a sum of the two means
        both.reference.param_groups[0]["lr"] = 0.2
    both.train()
    both.agree()


def test_micro_batches_are_averaged_though_the_loss_is_a_sum() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    both = Both(lambda m: T.SGD(m.parameters(), lr=0.1), options, reduction="sum")
    both.reference.param_groups[0]["lr"] = 0.05  # the mean of the two sums
    both.train()
    both.agree()


def test_float16_accumulators_hold_a_running_mean() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    both = Both(lambda m: optim.SGD(m.parameters(), lr=1.0, accum_type=torch.float16), options)
    strategies = poptorch.MeanReductionStrategy
    name = "meanAccumulationAndReplicationReductionStrategy"
    assert getattr(options.Training, name) is strategies.Post
    assert getattr(both.model.options.Training, name) is strategies.Running
    both.train(1)
    for mine, theirs in zip(both.module.parameters(), both.eager.parameters(), strict=True):
        torch.testing.assert_close(mine.data, theirs.data, rtol=1e-3, atol=1e-3)
        assert not torch.equal(mine.data, theirs.data)


def test_a_running_mean_must_be_compiled() -> None:
    both = Both(lambda m: optim.Adam(m.parameters(), lr=0.05))
    both.model.compile(X, Y)
    both.optimizer.accum_type = torch.float16
    with pytest.raises(poptorch.Error, match="is already compiled"):
        both.model.setOptimizer(both.optimizer)


def test_clipping_sees_all_gradients_of_an_update() -> None:
    class Clipped(T.SGD):
        def step(self, closure: Any = None) -> Any:
            """Of gradients as `clip_grad_norm_` leaves them."""
            torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.01)
            return super().step(closure)

    options = poptorch.Options()
    options.Training.gradientAccumulation(2)

    def make(module: Any) -> Any:
        return optim.SGD(module.parameters(), lr=1.0, max_grad_norm=0.01)

    both = Both(make, options)
    both.reference = Clipped(both.eager.parameters(), lr=1.0)
    both.train()
    both.agree()


def test_what_cannot_be_set_is_refused_and_the_old_optimizer_goes_on() -> None:
    both = Both(lambda m: T.SGD(m.parameters(), lr=0.1))
    both.train(1)
    with pytest.raises(poptorch.Error, match="LBFGS is not known"):
        both.model.setOptimizer(T.LBFGS(both.module.parameters()))
    both.train(1)
    both.agree()
    with pytest.raises(poptorch.Error, match="an inference model has no optimizer"):
        poptorch.inferenceModel(both.module).setOptimizer(both.optimizer)


class Deep(torch.nn.Module):
    """Two layers, which may be stages, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x: Any, y: Any) -> Any:
        with poptorch.Block(ipu_id=0):
            hidden = torch.tanh(self.first(x))
        with poptorch.Block(ipu_id=1):
            out = self.second(hidden)
            return out, self.loss(out, y)


def test_a_pipeline_clips_over_all_stages_and_scales_the_loss() -> None:
    module = Deep()
    eager = copy.deepcopy(module)
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    optimizer = optim.Adam(module.parameters(), lr=0.05, max_grad_norm=0.01, loss_scaling=64.0)
    model: Any = poptorch.trainingModel(module, options, optimizer)
    reference = T.Adam(eager.parameters(), lr=0.05)
    for _ in range(2):
        model(X, Y)
        reference.zero_grad()
        eager(X, Y)[1].backward()
        torch.nn.utils.clip_grad_norm_(eager.parameters(), 0.01)
        reference.step()
    for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True):
        wanted = theirs.detach().numpy()
        np.testing.assert_allclose(mine.detach().numpy(), wanted, 1e-5, 1e-6)
    assert optimizer.state_dict()["ipu_state"]["Step___first.weight"] == 2


class Idle(Classifier):
    """It has parameters that its loss does not depend on, though its outputs may."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.unused, self.beside, self.fixed = (torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: Any, y: Any) -> Any:
        shift = self.fixed(x).detach() + torch.ones_like(self.unused.bias)
        out, loss = super().forward(x + 0.1 * shift, y)
        return out + self.beside(x).sum(), loss


@pytest.mark.exhaustive
def test_parameters_that_the_loss_does_not_depend_on_are_left_alone() -> None:
    both = Both(lambda m: T.AdamW(m.parameters(), lr=0.1, weight_decay=0.5), module=Idle)
    before = {name: value.clone() for name, value in both.module.state_dict().items()}
    both.train()
    both.agree()
    after = both.module.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == [
        "linear.weight",
        "linear.bias",
    ]
    kept, wanted = (o.state_dict()["state"].keys() for o in (both.optimizer, both.reference))
    assert kept == wanted
    both.model.setOptimizer(T.SGD(both.module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5))
    both.reference = T.SGD(both.eager.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
    both.train()
    both.agree()
