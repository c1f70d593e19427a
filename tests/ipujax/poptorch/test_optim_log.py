"""What the log says of optimizers: their numbers, and what of them is ignored."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax.poptorch import optim  # noqa: E402
from ipujax.poptorch.optim.optimizer_log import OptimizerLog, describe_numbers  # noqa: E402

T = torch.optim


def parameters() -> list[Any]:
    return [torch.nn.Parameter(torch.ones(2))]


def test_numbers_have_popart_names_and_constants_say_so() -> None:
    graph, group = describe_numbers(T.SGD(parameters(), lr=0.5, weight_decay=0.25))
    assert graph.startswith(
        "graph optimizer with SGD, defaultDampening=0 (const), defaultLearningRate=0.5, "
        "defaultMomentum=0 (const), defaultWeightDecay=0.25, defaultVelocityScaling=1 (const), "
        "lossScaling=1 (const), accumType=float32"
    )
    assert group.startswith("group 0 optimizer with SGD, dampening=0 (const), learningRate=0.5, ")
    assert group.endswith("useTfVariant=0, maxGradNorm=inf")


def test_an_optimizer_of_torch_and_one_of_poptorch_are_described_alike() -> None:
    for ours, theirs in ((optim.AdamW, T.AdamW), (optim.RMSprop, T.RMSprop), (optim.SGD, T.SGD)):
        assert describe_numbers(ours(parameters(), lr=0.5)) == describe_numbers(
            theirs(parameters(), lr=0.5)
        )
    (_, group) = describe_numbers(optim.Adam(parameters(), lr=0.5, betas=(0.5, 0.75), eps=1e-8))
    assert "beta1=0.5, beta2=0.75, eps=1e-08, learningRate=0.5, weightDecay=0 (const)" in group


def test_dtypes_are_described() -> None:
    half = torch.float16
    graph, _ = describe_numbers(
        optim.SGD(parameters(), 0.5, accum_type=half, velocity_accum_type=half)
    )
    assert "accumType=float16, firstOrderMomentumAccumType=float16, second" in graph


def test_numbers_are_told_when_they_are_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "poptorch::python")
    log, optimizer = OptimizerLog(), T.SGD(parameters(), lr=0.5)
    log.log_changed_numbers(optimizer)
    assert "Updating graph optimizer" in caplog.text
    assert "Updating group 0 optimizer" in caplog.text
    caplog.clear()
    log.log_changed_numbers(T.SGD(parameters(), lr=0.5, momentum=0.0))
    assert not caplog.text
    optimizer.param_groups[0]["lr"] = 0.25
    log.log_changed_numbers(optimizer)
    assert "learningRate=0.25," in caplog.text


def test_attributes_that_come_later_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    log, optimizer = OptimizerLog(), optim.SGD(parameters(), lr=0.5)
    optimizer.param_groups[0]["initial_lr"] = 0.5
    log.log_ignored_attributes(optimizer)
    log.log_ignored_attributes(optimizer)
    assert not caplog.text
    strange: Any = optimizer
    strange.initial_lr, strange.step = 0.25, 0
    optimizer.param_groups[0]["loss_scaling"] = 4.0
    log.log_ignored_attributes(optimizer)
    assert "Ignoring unexpected optimizer attribute in SGD optimizer: ['initial_lr', 'step']" in (
        caplog.text
    )
    assert "Ignoring unexpected group 0 attribute in SGD optimizer: ['loss_scaling']" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    caplog.clear()
    log.log_ignored_attributes(optimizer)
    assert not caplog.text


def test_schedulers_and_other_kinds_are_nothing_strange(caplog: pytest.LogCaptureFixture) -> None:
    log, optimizer = OptimizerLog(relaxed=True), T.SGD(parameters(), lr=0.5)
    log.log_ignored_attributes(optimizer)
    T.lr_scheduler.StepLR(optimizer, 1)
    log.log_ignored_attributes(optimizer)  # `initial_lr` in its groups
    log.log_ignored_attributes(optim.Adam(parameters()))
    assert not caplog.text


@pytest.mark.parametrize("parent", [T.SGD, T.AdamW, optim.SGD, optim.LAMB])
def test_a_class_of_ones_own_is_told(parent: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Own(parent):
        """Nothing of its own."""

    OptimizerLog().log_ignored_attributes(parent(parameters(), lr=0.5))
    assert not caplog.text
    OptimizerLog().log_ignored_attributes(Own(parameters(), lr=0.5))
    assert "Optimizer Own is" in caplog.text
    assert "Poptorch does not run Python optimizer code directly" in caplog.text
