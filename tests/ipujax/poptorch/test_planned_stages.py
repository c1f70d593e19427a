"""`AutoStage.Auto`: a plan cuts PopTorch's models, and the numbers stay PyTorch's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ipujax as ipu  # noqa: E402
from ipujax import poptorch  # noqa: E402
from ipujax.errors import PlanError  # noqa: E402

WIDTH, COUNT, ROWS = 8, 6, 8


class Deep(torch.nn.Module):
    """Layers, the first weights of which are the last ones too, with moving statistics."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(12, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, words: Any, labels: Any = None) -> Any:
        x = self.embedding(words)
        for number, layer in enumerate(self.layers):
            with poptorch.Block(f"layer {number}", ipu_id=0):  # which a plan does not follow
                x = x + torch.tanh(layer(x))
        x = self.norm(x) @ self.embedding.weight.t()
        return x if labels is None else (x, torch.nn.functional.cross_entropy(x, labels))


def placing_of(model: Any) -> Any:
    return model._traced.staged


def planned_options(**choices: Any) -> Any:
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.Auto))
    return options.autoPlan(**choices)


def trained(change: Callable[[Any], Any] = lambda options: options, **choices: Any) -> Any:
    """The model after some steps, the one that PyTorch trained alone, and the program's placing."""
    torch.manual_seed(0)
    module = Deep().train()
    alone = copy.deepcopy(module)
    options = planned_options(**choices)
    options.Training.gradientAccumulation(COUNT)
    change(options)
    rows = ROWS * COUNT * options.replication_factor
    model = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=0.3))
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.3)
    for _ in range(3):
        words, labels = torch.randint(0, 12, (rows,)), torch.randint(0, 12, (rows,))
        _, losses = model(words, labels)
        optimizer.zero_grad()
        parts = zip(words.split(ROWS), labels.split(ROWS), strict=True)
        own = torch.stack([alone(*part)[1] for part in parts])
        own.mean().backward()
        optimizer.step()
        torch.testing.assert_close(losses, own.detach(), rtol=1e-4, atol=1e-5)
    model.copyWeightsToHost()
    for one, other in zip(module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return model, placing_of(model)


@pytest.mark.parametrize(
    "choices",
    [
        {"ipus": 4},
        {"ipus": 2, "schedules": "interleaved_one_f_one_b", "recompute": True},
        {"ipus": 2, "schedules": ("one_f_one_b",), "recompute": (False,), "micro_batches": COUNT},
    ],
)
def test_a_planned_model_trains_as_pytorch_does(choices: Any) -> None:
    model, staged = trained(**choices)
    plan = staged.plan
    assert staged.ipus == plan.device_mapping
    assert len(plan.stages) > 1
    attached = 1 << max(plan.device_mapping).bit_length()  # devices have a power of two of IPUs
    assert model._executable.executable.report().num_ipus == attached
    assert plan.micro_batches == COUNT
    assert plan.stages[0].first.startswith("embedding")
    if "recompute" in choices:
        assert plan.recompute is (choices["recompute"] is True)


def test_cuts_are_considered() -> None:
    given = {"stages": [1], "schedule": "one_f_one_b"}
    _, staged = trained(ipus=2, consider=[given], budget_seconds=5)
    (row,) = [row for row in staged.plan.considered if row.why.startswith("given")]
    assert (row.schedule, row.cut_points, row.stages) == ("one_f_one_b", (1,), 2)
    assert staged.plan.seconds <= row.seconds


def test_replicas_of_a_planned_pipeline() -> None:
    _, staged = trained(lambda options: options.replicationFactor(2), ipus=4)
    assert staged.plan.replicas == 2
    assert staged.ipu_count == 2


def test_the_options_own_recomputation_is_planned() -> None:
    def change(options: Any) -> None:
        options._Popart.set("autoRecomputation", 3)

    _, staged = trained(change, ipus=2, schedules="one_f_one_b")
    assert staged.plan.recompute


def test_the_users_system_says_how_many_ipus_there_are() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    _, staged = trained(schedules="one_f_one_b")
    assert staged.ipus == (0, 1)


def test_a_planned_model_infers_as_pytorch_does() -> None:
    module = Deep().eval()
    model = poptorch.inferenceModel(module, planned_options(ipus=4).deviceIterations(8))
    words = torch.randint(0, 12, (8 * ROWS,))
    torch.testing.assert_close(model(words), module(words), rtol=1e-4, atol=1e-5)
    assert len(placing_of(model).ipus) > 1


def test_one_layer_is_one_stage() -> None:
    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            x = self.layer(x)
            return x, poptorch.identity_loss(x.square(), "mean")

    module = One()
    alone = copy.deepcopy(module)
    options = planned_options(ipus=4)
    options.Training.gradientAccumulation(2)
    model = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=0.1))
    x = torch.ones(4, 4)
    torch.testing.assert_close(model(x)[0], alone(x)[0].detach())
    assert placing_of(model).ipus == (0,)


def test_nothing_fits() -> None:
    with pytest.raises(poptorch.Error, match="no plan fits in memory") as caught:
        trained(ipus=2, memory=100)
    assert isinstance(caught.value, PlanError)
    assert caught.value.lacks > 0
    assert not caught.value.nearest.fits


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"ipus": 2, "stages": 2}, "no keyword 'stages'"),
        ({"ipus": 2, "argnums": 0}, "PopTorch knows"),
        ({"ipus": 0}, "ipus"),
        ({"ipus": 2, "schedules": "best"}, "schedules"),
        ({"ipus": 2, "memory": -1}, "memory is -1"),
        ({"ipus": 2, "memory": (1e9,)}, "memory has 1 entries for 2"),
        ({"ipus": 2, "budget_seconds": 0}, "budget_seconds"),
        ({"ipus": 2, "costs": "guessed"}, "costs"),
        ({"ipus": 2, "consider": 3}, "consider is 3"),
        ({"ipus": 2, "consider": [{"stages": [99]}]}, "cuts at segment 99 of"),
        ({"ipus": 2, "costs": ipu.planning.Costs([1], [1])}, "costs of your own"),
        ({"ipus": 2, "micro_batches": COUNT + 1}, "autoPlan\\(micro_batches"),
        ({"ipus": 4, "replicas": 2}, "autoPlan\\(replicas"),
        ({}, "how many IPUs"),
    ],
)
def test_plans_that_cannot_be(choices: Any, message: str) -> None:
    with pytest.raises((poptorch.Error, TypeError), match=message):
        trained(**choices)


def test_options_that_contradict_each_other() -> None:
    def recompute(options: Any) -> None:
        options._Popart.set("autoRecomputation", 3)

    with pytest.raises(poptorch.Error, match="autoRecomputation"):
        trained(recompute, ipus=2, recompute=False)
    with pytest.raises(poptorch.Error, match="is not planned"):
        poptorch.inferenceModel(Deep(), poptorch.Options().autoPlan(ipus=2))
    with pytest.raises(poptorch.Error, match="one after the other"):
        poptorch.ShardedExecution(poptorch.AutoStage.Auto)
    options = planned_options(ipus=2)
    poptorch.inferenceModel(Deep(), options)
    with pytest.raises(AttributeError, match="frozen"):
        options.autoPlan(ipus=4)
