"""Calls that fail: the module keeps the weights that it had, and the wrapper works on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.errors import OutOfMemoryError  # noqa: E402
from tests.ipujax.poptorch.modules import Regression, batch  # noqa: E402
from tests.ipujax.reporting import configured  # noqa: E402

STEPS = 3
INDEX = torch.tensor([0, 0, 1, 1, 1])


class OnHost:
    """Fails in the second micro-batch while it has to."""

    def __init__(self) -> None:
        self.fails, self.calls = True, 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.fails and self.calls == 2:
            raise KeyError("no such row")
        return x.clone()


class Asking(torch.nn.Module):
    """Counts rows, asks the host, and has a layer behind that."""

    def __init__(self, host: OnHost):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("rows", torch.zeros(1))
        self.ask = poptorch.CPU(host, "asked")

    def forward(self, x: Any) -> Any:
        with poptorch.Block("in", ipu_id=0):
            self.rows.add_(x.shape[0])
            x = self.ask(x)
        with poptorch.Block("out", ipu_id=1):
            y = self.layer(x)
            return y, poptorch.identity_loss((y - 1) ** 2, "mean")


def snapshot(module: Any) -> dict[str, Any]:
    return copy.deepcopy(dict(module.state_dict()))


def same(module: Any, before: dict[str, Any]) -> None:
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_pipelined", [False, True])
def test_code_of_the_host_fails_in_a_device_loop(is_pipelined: bool) -> None:
    host = OnHost()
    module = Asking(host)
    reference = copy.deepcopy(module.layer)
    options = poptorch.Options()
    if is_pipelined:
        options.Training.gradientAccumulation(STEPS)
    else:
        options.setExecutionStrategy(poptorch.ShardedExecution()).deviceIterations(STEPS)
    plain = torch.optim.SGD(module.parameters(), lr=0.1)
    training = poptorch.trainingModel(module, options, plain)
    before = snapshot(module)
    x = torch.arange(4.0 * STEPS).reshape(2 * STEPS, 2) / 10
    with pytest.raises(poptorch.Error, match="KeyError: 'no such row'"):
        training(x)
    same(module, before)
    host.fails = False
    training(x)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for rows in [x] if is_pipelined else x.split(2):
        optimizer.zero_grad()
        ((reference(rows) - 1) ** 2).mean().backward()
        optimizer.step()
    torch.testing.assert_close(module.layer.weight.detach(), reference.weight.detach())
    assert module.rows.item() == 2 * STEPS


@pytest.mark.exhaustive
def test_a_value_that_is_none_ends_a_device_loop() -> None:
    module = Regression()
    options = poptorch.Options().deviceIterations(STEPS)
    options.Precision.enableFloatingPointExceptions(True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    training = poptorch.trainingModel(module, options, optimizer)
    x, y = batch()
    training(x, y)
    before, momentum = snapshot(module), copy.deepcopy(optimizer.state_dict())
    bad = x.clone()
    bad[-1] = float("inf")  # in the last micro-batch
    with pytest.raises(poptorch.Error, match="invalid in"):
        training(bad, y)
    same(module, before)
    torch.testing.assert_close(optimizer.state_dict(), momentum, rtol=0, atol=0)
    training(x, y)
    assert not torch.equal(module.first.weight, before["first.weight"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: torch.zeros(3).scatter_reduce(0, INDEX, x, "amax", include_self=False),
        lambda x: torch.zeros(3).scatter_reduce(0, INDEX, x, "amin", include_self=False),
        lambda x: torch.median(torch.where(x > 1, torch.inf, x)),
    ],
)
def test_an_infinity_of_a_reduction_is_no_fault(
    reduce: Callable[[Any], Any],
) -> None:
    class Reduction(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(5))

        def forward(self, x: Any) -> tuple[Any, Any]:
            y = reduce(x * self.scale)
            return y, poptorch.identity_loss(y.sum(), "sum")

    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    x = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0])
    trained, beside = Reduction(), Reduction()
    training = poptorch.trainingModel(trained, options, torch.optim.SGD(trained.parameters(), 0.1))
    assert torch.equal(training(x)[0], beside(x)[0])
    beside(x)[1].backward()
    torch.optim.SGD(beside.parameters(), 0.1).step()
    torch.testing.assert_close(trained.scale, beside.scale)


def test_what_must_fit_and_does_not_is_not_compiled() -> None:
    forbid = {"debug.allowOutOfMemory": "false"}
    configured(ipu_model__tiles_per_ipu=1, compilation_poplar_options=forbid)
    module = Regression()
    options = poptorch.Options()
    options._Popart.setEngineOptions(forbid)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    training = poptorch.trainingModel(module, options, optimizer)
    before = snapshot(module)
    with pytest.raises(poptorch.Error, match="Out of memory") as caught:
        training(torch.ones(100_000, 3), torch.ones(100_000, 2))
    assert isinstance(caught.value.__cause__, OutOfMemoryError)
    assert not training.isCompiled()
    same(module, before)
    expected = module(*batch())[1].item()
    assert training(*batch())[1].item() == pytest.approx(expected)
    assert not torch.equal(module.first.weight, before["first.weight"])


class Returning(torch.nn.Module):
    """Returns something beside its result."""

    def __init__(self, beside: Any) -> None:
        super().__init__()
        self.beside = beside

    def forward(self, x: Any) -> Any:
        return {"out": x + 1, "beside": [self.beside]}


@pytest.mark.parametrize(
    "beside", [None, 3, 2.5, True, "a text", torch.float32, torch.nn.Linear, range(3)]
)
def test_outputs_that_are_constants_come_back(beside: Any) -> None:
    out = poptorch.inferenceModel(Returning(beside))(torch.ones(2))
    assert out["beside"] == [beside]


@pytest.mark.parametrize(
    "beside", [object(), {1}, len, np.zeros(2)], ids=lambda value: type(value).__name__
)
def test_outputs_that_are_neither_tensors_nor_constants_are_refused(beside: Any) -> None:
    message = r"(?s)output\['beside'\]\[0\] of module Returning.*test_failures.py:\d+"
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(Returning(beside))(torch.ones(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_modules_of_torchscript_are_refused() -> None:
    layer = torch.nn.Linear(2, 2)
    traced = torch.jit.trace(layer, torch.ones(1, 2))
    scripted = torch.jit.script(layer)
    for module in (traced, scripted, torch.nn.Sequential(scripted), torch.nn.Sequential(traced)):
        for wrap in (poptorch.inferenceModel, poptorch.trainingModel):
            with pytest.raises(poptorch.Error, match="TorchScript"):
                wrap(module)
