"""Plans are the fastest of all, and say so only then."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ipujax.errors import PlanError
from ipujax.planner import Costs, Plan, search
from tests.ipujax.planner.brute_force import BUILDERS, SHARING, Tried, try_everything

ROUNDING = 1e-9


@st.composite
def cases(draw: st.DrawFn, most_segments: int, most_ipus: int) -> tuple[Costs, dict[str, Any]]:
    """Costs of a few segments, and what may be chosen."""
    count = draw(st.integers(1, most_segments))
    few = st.integers(0, 9)

    def row(length: int, numbers: st.SearchStrategy[int] = few) -> list[int]:
        return draw(st.lists(numbers, min_size=length, max_size=length))

    pairs = [*itertools.combinations(range(count), 2)]
    skips = draw(st.lists(st.tuples(st.sampled_from(pairs), few), max_size=3)) if pairs else []
    shared = draw(st.lists(st.tuples(st.sampled_from(pairs), few), max_size=3)) if pairs else []
    tied = draw(st.lists(st.tuples(st.sampled_from(pairs), few), max_size=2)) if pairs else []
    kept = [
        own + sum(size for (_, b), size in shared if b == i) for i, own in enumerate(row(count))
    ]
    costs = Costs(
        row(count),
        row(count),
        draw(st.none() | st.builds(row, st.just(count))),
        row(count),
        row(count),
        kept,
        row(count),
        row(count - 1),
        [(*ends, size) for ends, size in skips],
        draw(st.sampled_from((math.inf, 1.0, 4.0))),
        draw(st.sampled_from((0.0, 0.5))),
        draw(st.sampled_from((0.0, 2.0, 8.0, math.inf))),
        [(*ends, size) for ends, size in shared],
        [(*ends, size) for ends, size in tied],
    )
    ipus = draw(st.integers(1, most_ipus))
    memory = st.integers(5, 150)
    chosen = {
        "ipus": ipus,
        "micro_batches": draw(st.lists(st.sampled_from((1, 2, 4, 6, 8)), min_size=1, max_size=2)),
        "schedules": draw(st.lists(st.sampled_from([*BUILDERS]), min_size=1, max_size=3)),
        "recompute": draw(st.sampled_from(((False,), (True,), (False, True)))),
        "offload": draw(st.sampled_from(((False,), (True,), (False, True)))),
        "replicas": draw(st.sampled_from(((1,), (2,), (1, 2)))),
        "memory": draw(st.none() | memory | st.lists(memory, min_size=ipus, max_size=ipus)),
    }
    return costs, chosen


def everything(costs: Costs, chosen: dict[str, Any]) -> tuple[list[Tried], list[float]]:
    memory = np.broadcast_to(
        math.inf if chosen["memory"] is None else chosen["memory"], chosen["ipus"]
    ).tolist()
    tried = try_everything(
        costs,
        chosen["ipus"],
        chosen["micro_batches"],
        chosen["schedules"],
        chosen["recompute"],
        chosen["offload"],
        chosen["replicas"],
    )
    return [*tried], memory


def check_against_all(costs: Costs, chosen: dict[str, Any]) -> None:
    if chosen["offload"] == (True,) and not costs.host_bytes_per_second:
        with pytest.raises(PlanError, match="no host memory"):
            search(costs, **chosen)
        return
    tried, memory = everything(costs, chosen)
    if not tried:
        with pytest.raises(PlanError, match=r"no schedule can have|splits the backward pass"):
            search(costs, **chosen)
        return
    fitting = [one for one in tried if one.excess(memory) <= 0]
    if not fitting:
        with pytest.raises(PlanError, match="no plan fits in memory") as caught:
            search(costs, **chosen)
        nearest = caught.value.nearest
        assert nearest is not None
        assert not nearest.fits
        assert caught.value.lacks == pytest.approx(
            max(a - b for a, b in zip(nearest.peak_bytes, memory, strict=False))
        )
        if not {*SHARING} & {*chosen["schedules"]}:
            assert caught.value.lacks == pytest.approx(min(one.excess(memory) for one in tried))
        return
    best = min(one.seconds for one in fitting)
    plan = search(costs, **chosen)
    assert plan.seconds == pytest.approx(best, rel=ROUNDING)
    assert plan.proven
    assert plan.fits
    assert plan.lower_bound <= best * (1 + ROUNDING)
    check_is_one_of(plan, fitting)


def check_is_one_of(plan: Plan, tried: list[Tried]) -> None:
    """What a plan says of itself is what that cut takes."""
    cut = (0, *(stage.segments[1] for stage in plan.stages))
    same = [
        one
        for one in tried
        if (one.schedule, one.micro_batches, one.recompute, one.offload, one.cut)
        == (plan.schedule, plan.micro_batches, plan.recompute, plan.offload, cut)
        and one.peak_bytes == pytest.approx(plan.peak_bytes)
    ]
    assert any(one.seconds == pytest.approx(plan.seconds) for one in same)


FEW_MICRO_BATCHES = [
    (
        Costs(
            [7, 6, 3, 7, 6, 5, 3, 0, 9],
            [2, 1, 4, 4, 5, 1, 6, 0, 0],
            update=[1, 7, 8, 8, 0, 1, 2, 9, 6],
            latency=0.5,
        ),
        {"ipus": 5, "schedules": ["one_f_one_b"], "memory": None},
    ),
    (
        Costs(
            [7, 6, 6, 5, 6, 8, 9, 4],
            [3, 4, 0, 0, 9, 3, 6, 0],
            [6, 7, 4, 6, 8, 7, 1, 3],
            [7, 6, 4, 2, 8, 9, 3, 0],
            [5, 5, 5, 6, 7, 0, 4, 3],
            [2, 0, 3, 4, 9, 7, 8, 8],
            [9, 6, 7, 6, 8, 9, 3, 8],
            [8, 6, 0, 7, 4, 6, 1],
            [(1, 5, 6), (1, 5, 6)],
            4.0,
            0.5,
        ),
        {"ipus": 4, "schedules": ["eager_one_f_one_b"], "memory": 120},
    ),
]
"""Of the first stages, forward tasks are over before the first backward task."""


@pytest.mark.parametrize(("costs", "chosen"), FEW_MICRO_BATCHES)
def test_no_cut_for_few_micro_batches_is_faster(costs: Costs, chosen: dict[str, Any]) -> None:
    others = {
        "micro_batches": [2],
        "recompute": (False, True),
        "offload": (False,),
        "replicas": (1,),
    }
    check_against_all(costs, chosen | others)


@settings(max_examples=150)
@given(cases(most_segments=6, most_ipus=4))
def test_no_cut_is_faster(case: tuple[Costs, dict[str, Any]]) -> None:
    check_against_all(*case)


@settings(max_examples=60)
@given(cases(most_segments=6, most_ipus=4), st.sampled_from((1e-9, 0.01, 0.03)))
def test_what_is_found_in_no_time_is_bounded(
    case: tuple[Costs, dict[str, Any]], seconds: float
) -> None:
    costs, chosen = case
    try:
        plan = search(costs, budget_seconds=seconds, **chosen)
    except PlanError:
        return
    tried, memory = everything(costs, chosen)
    fitting = [one for one in tried if one.excess(memory) <= 0]
    best = min(one.seconds for one in fitting)
    assert plan.lower_bound <= best * (1 + ROUNDING)
    assert best <= plan.seconds * (1 + ROUNDING)
    check_is_one_of(plan, fitting)


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize(
    ("number", "examples", "most_segments"), [(1, 600, 9), (2, 600, 9), (3, 600, 9), (4, 150, 12)]
)
def test_no_cut_of_more_segments_is_faster(number: int, examples: int, most_segments: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @seed(number)
    @settings(max_examples=examples, derandomize=False, database=None, suppress_health_check=checks)
    @given(cases(most_segments, most_ipus=5))
    def check_case(case: tuple[Costs, dict[str, Any]]) -> None:
        check_against_all(*case)

    check_case()


def test_what_waits_bounds_the_time_of_all_schedules() -> None:
    """What segment i keeps waits 2 * (8 - i) seconds: 72 byte seconds of each micro-batch."""
    costs = Costs([1.0] * 8, [1.0] * 8, activation_bytes=[1.0] * 8)
    only = {"recompute": False, "offload": False, "budget_seconds": 1e-9}
    plan = search(costs, ipus=2, micro_batches=64, memory=4.0, **only)
    shared_work, waiting = 64 * 16 / 2, 64 * 72 / (2 * 4.0)
    assert shared_work < waiting * (1 - 1e-6) <= plan.lower_bound <= plan.seconds
