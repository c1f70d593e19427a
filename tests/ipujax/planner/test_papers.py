"""The bubble and the memory of schedules, as the papers' tables give them for equal stages."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from ipujax.planner import Costs, Plan, search

SIZES = [(2, 4), (3, 6), (4, 8), (4, 16), (8, 16)]
"""IPUs and micro-batches."""


def plan_of_equal_segments(
    schedule: str, ipus: int, micro_batches: int, each: int = 1, backward: int = 2
) -> Plan:
    """The plan for `each` segments for an IPU, each forward 1, and a byte a micro-batch."""
    count = ipus * each
    weight = [1] * count if schedule == "zero_bubble" else None
    costs = Costs([1] * count, [backward] * count, weight, activation_bytes=[1] * count)
    plan = search(costs, ipus=ipus, micro_batches=micro_batches, schedules=schedule)
    assert len(plan.stages) == count
    assert plan.proven
    assert plan.gap == pytest.approx(0, abs=1e-12)
    return plan


def check(plan: Plan, idle: Fraction | int, work: int, waiting: Sequence[int]) -> None:
    """An IPU works, and is idle, for so many seconds; and so many micro-batches wait on each."""
    assert plan.seconds == pytest.approx(float(work + idle), rel=1e-12)
    assert plan.bubble == pytest.approx(float(Fraction(idle) / (work + idle)), rel=1e-12)
    assert plan.peak_bytes == tuple(waiting)


@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_gpipe(ipus: int, micro_batches: int) -> None:
    # GPipe, arXiv 1811.06965: a bubble of (K - 1) / (M + K - 1), and all micro-batches wait.
    plan = plan_of_equal_segments("gpipe", ipus, micro_batches)
    check(plan, 3 * (ipus - 1), 3 * micro_batches, [micro_batches] * ipus)


@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_one_f_one_b(ipus: int, micro_batches: int) -> None:
    # PipeDream-Flush, arXiv 2006.09503: GPipe's bubble; as many wait as stages are to come.
    plan = plan_of_equal_segments("one_f_one_b", ipus, micro_batches)
    check(plan, 3 * (ipus - 1), 3 * micro_batches, range(ipus, 0, -1))


@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_eager_one_f_one_b(ipus: int, micro_batches: int) -> None:
    # Zhuang et al., arXiv 2211.05322: 2 * (stages to come) - 1 wait, for the same bubble.
    plan = plan_of_equal_segments("eager_one_f_one_b", ipus, micro_batches)
    waiting = [min(micro_batches, 2 * (ipus - stage) - 1) for stage in range(ipus)]
    check(plan, 3 * (ipus - 1), 3 * micro_batches, waiting)


@pytest.mark.parametrize("each", [2, 3])
@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_interleaved_one_f_one_b(ipus: int, micro_batches: int, each: int) -> None:
    # Narayanan et al., arXiv 2104.04473: the bubble is 1 / v of that of 1F1B. Korthikanti et al.,
    # arXiv 2205.05198: the first device keeps p * (1 + (p - 1) / (p * v)) micro-batches' share.
    # A plan counts each stage at its own fullest moment, which is somewhat more.
    plan = plan_of_equal_segments("interleaved_one_f_one_b", ipus, micro_batches, each)
    idle, work = 3 * (ipus - 1), 3 * micro_batches * each
    assert plan.seconds == pytest.approx(work + idle, rel=1e-12)
    assert plan.bubble == pytest.approx(idle / (work + idle), rel=1e-12)
    kept = min(each * micro_batches, ipus * each + ipus - 1)
    assert kept <= plan.peak_bytes[0] <= kept + each**2


@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_looped_bfs(ipus: int, micro_batches: int) -> None:
    # Lamy-Poirier, arXiv 2211.05953: interleaved 1F1B's bubble, and all micro-batches wait.
    plan = plan_of_equal_segments("looped_bfs", ipus, micro_batches, each=2)
    check(plan, 3 * (ipus - 1), 6 * micro_batches, [2 * micro_batches] * ipus)


@pytest.mark.parametrize(("ipus", "micro_batches"), SIZES)
def test_zero_bubble(ipus: int, micro_batches: int) -> None:
    # Qi et al., arXiv 2401.10241, ZB-H1: a bubble of (p - 1) * (T_F + T_B - T_W), and p wait.
    plan = plan_of_equal_segments("zero_bubble", ipus, micro_batches, backward=1)
    check(plan, ipus - 1, 3 * micro_batches, [ipus] * ipus)


@pytest.mark.parametrize(("ipus", "micro_batches"), [(2, 8), (4, 16), (4, 32)])
def test_grouped(ipus: int, micro_batches: int) -> None:
    # Without syncs an IPU keeps 2 * (stages - 1 - s) + 1 micro-batches, and the bubble is GPipe's.
    plan = plan_of_equal_segments("grouped", ipus, micro_batches)
    waiting = [2 * (ipus - 1 - stage) + 1 for stage in range(ipus)]
    check(plan, 3 * (ipus - 1), 3 * micro_batches, waiting)
