"""Advice that was modelled: it is followed here, and the program modelled again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipujax.report.advice.changes import Case, Change
from ipujax.report.advice.findings import Advice
from ipujax.report.advice.trials import Budget, trials
from ipujax.report.report import Report
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct, training, zeros

Options = dict[str, Any]

WAITING: Options = {"width": 64, "batch": 20_000}  # what waits between the passes is most of it


def modelled(config: Options | None = None, **arguments: Any) -> Report:
    configured(2, ipu_model__tiles_per_ipu=4, **(config or {}))
    model, args = training(2, 8, **arguments)
    return ipu.compile(model).lower(*args).report()


def only(report: Report, rule: str) -> Advice:
    (entry,) = (entry for entry in report.advice if entry.rule == rule)
    return entry


def fullest(report: Report) -> int:
    return int(report.memory.tile_peak_bytes.max())


FOLLOWED: dict[str, tuple[Options, Options]] = {
    "recompute": ({"allow_recompute": True}, {}),
    "offload_activations": ({}, {"offload_activations": True}),
    "schedule": ({}, {"pipeline_schedule": PipelineSchedule.Interleaved}),
}


def test_whoever_follows_advice_gets_what_it_says() -> None:
    report = modelled(**WAITING)
    given = [entry.rule for entry in report.advice if entry.rule in FOLLOWED]
    assert len(given) >= 2
    for rule in given:
        config, arguments = FOLLOWED[rule]
        entry, after = only(report, rule), modelled(config, **WAITING, **arguments)
        assert entry.fullest_bytes == fullest(after)
        assert entry.enough == after.memory.fits
        assert f"{fullest(report):,} -> {fullest(after):,} bytes" in entry.text
        assert rule not in {each.rule for each in after.advice}


def layers(
    counts: Sequence[int], width: int, **arguments: Any
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """A pipeline whose stages have so many layers of one matrix each."""
    total = sum(counts)
    starts = [sum(counts[:n]) for n in range(len(counts))]

    def stage(number: int) -> Callable[..., Any]:
        def run(weights: Any, x: Any, y: Any) -> Any:
            for layer in range(starts[number], starts[number] + counts[number]):
                x = jnp.tanh(x @ weights[layer])
            return (x, y) if number < len(counts) - 1 else jnp.mean((x - y) ** 2)

        return run

    elements, losses = infeed(zeros(8, width)), outfeed()

    def train(weights: Any) -> Any:
        return pipeline(
            [stage(number) for number in range(len(counts))],
            16,
            infeed_queue=elements,
            outfeed_queue=losses,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(0.1), loss),
            variables=weights,
            **arguments,
        )

    return train, ([struct(width, width)] * total,)


def of_layers(counts: Sequence[int], tiles: int, width: int = 256, **arguments: Any) -> Report:
    configured(len(counts), ipu_model__tiles_per_ipu=tiles)
    model, args = layers(counts, width, **arguments)
    return ipu.compile(model).lower(*args).report()


@pytest.mark.parametrize(
    ("rule", "now", "then", "tiles"),
    [("split_stages", (6, 2), (4, 4), 10), ("more_ipus", (4, 4), (2, 2, 2, 2), 4)],
)
def test_stages_can_be_cut_as_advised(
    rule: str, now: Sequence[int], then: Sequence[int], tiles: int
) -> None:
    """The model makes the cut in the traced function, the user in Python."""
    report = of_layers(now, tiles)
    entry = only(report, rule)
    assert f"with {', '.join(map(str, then))} products" in entry.text
    assert f"(now {', '.join(map(str, now))})" in entry.text
    after = of_layers(then, tiles)
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)
    assert entry.enough == after.memory.fits


def test_what_does_not_do_alone_is_tried_together() -> None:
    report = of_layers((4, 4), 4)
    entry, *others = report.advice
    assert entry.rule == "combination"
    assert entry.text.startswith("offload_weight_update_variables + 4 IPUs: fits, ")
    assert not any(other.enough for other in others)
    after = of_layers((2, 2, 2, 2), 4, offload_weight_update_variables=True)
    assert entry.fullest_bytes == pytest.approx(fullest(after), rel=0.02)
    assert after.memory.fits


def change(name: str) -> Change:
    return Change(name, name, name, lambda case: case)


def test_searches_end_in_time_and_say_what_is_left() -> None:
    report = modelled(**WAITING)
    case = Case(None, None, None)  # type: ignore[arg-type]
    asked: list[Case] = []

    def profile(self: Case) -> Any:
        asked.append(self)  # four seconds each, where ten are allowed
        return report.profile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "profile", profile)
        given = [change(name) for name in "abc"]
        budget = Budget(2, lambda: 4.0 * len(asked))
        found = trials(case, report.profile, given, budget)
    assert len(asked) == 2
    assert [each.rule for each in found.untried] == ["c"]
    assert found.done == ()
