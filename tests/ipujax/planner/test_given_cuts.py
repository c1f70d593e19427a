"""Cuts that a user names are compared with those of a search."""

from __future__ import annotations

from typing import Any

import pytest

from ipujax.errors import PlanError
from ipujax.planner import Costs, search
from lowering import schedules
from tests.ipujax.planner.brute_force import list_moments, take

COSTS = Costs([4, 1, 3, 2, 5], [8, 2, 6, 4, 10], [1] * 5, activation_bytes=[3, 1, 4, 1, 5])


def test_a_given_cut_is_a_row_with_its_own_seconds() -> None:
    given = {"stages": [1, 3], "schedule": "grouped", "device_mapping": [0, 1, 0]}
    plan = search(COSTS, ipus=2, micro_batches=12, consider=[given])
    schedule = schedules.grouped(3, 12, ipus=[0, 1, 0])
    moments = list_moments(schedule)
    seconds, _ = take(COSTS, schedule, (0, 1, 3, 5), moments, again=False, stores=False)
    (row,) = [row for row in plan.considered if row.why.startswith("given: ")]
    assert row.seconds == seconds
    assert row.cut_points == (1, 3)
    assert row.why == f"given: {seconds / plan.seconds - 1:.1%} slower"


def test_a_given_cut_that_is_best_is_the_plan() -> None:
    # No other schedule than grouped may be chosen, and two IPUs suffice for three stages alone.
    costs = Costs([4, 4, 4, 4], [4, 4, 4, 4], cut_bytes=[9, 9, 9], parameter_bytes=[0, 9, 9, 0])
    given = {"stages": [1, 3], "schedule": "grouped", "device_mapping": [0, 1, 0]}
    one = search(costs, ipus=2, micro_batches=12, schedules="sequential", consider=[given])
    assert one.device_mapping == (0, 1, 0)
    assert one.proven
    fits = search(costs, ipus=2, micro_batches=12, schedules="grouped", consider=[given])
    assert fits.seconds <= one.seconds


def test_a_plan_may_be_given() -> None:
    few = search(COSTS, ipus=2, micro_batches=6, schedules="gpipe")
    plan = search(COSTS, ipus=2, micro_batches=6, consider=[few.arguments])
    assert any(row.cut_points == few.cut_points for row in plan.considered if "given" in row.why)
    assert plan.seconds <= few.seconds


def test_a_given_cut_that_does_not_fit_says_so() -> None:
    given = {"stages": [4], "schedule": "gpipe"}
    plan = search(COSTS, ipus=2, micro_batches=8, memory=60, consider=[given])
    (row,) = [row for row in plan.considered if row.why.startswith("given: ")]
    assert row.seconds is None
    assert row.why == f"given: does not fit: lacks {8 * (3 + 1 + 4 + 1) - 60} bytes on an IPU"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "consider is 3"),
        ([3], "is a int"),
        ([{"stage": [1]}], "has 'stage'"),
        ([{"stages": [2, 1]}], "do not ascend"),
        ([{"stages": [5]}], "cuts at segment 5 of 5"),
        ([{"stages": [0]}], "an entry of stages is 0"),
        ([{"stages": [1], "schedule": "fastest"}], "'fastest'"),
        ([{"stages": [1], "micro_batches": 5}], "5 micro-batches"),
        ([{"stages": [1], "device_mapping": [0]}], "2 stages on the IPUs"),
        ([{"stages": [1], "device_mapping": [0, 2]}], "2 stages on the IPUs"),
        ([{"stages": [1, 2], "device_mapping": [0, 1, 0]}], "one_f_one_b cannot have"),
        ([{"stages": [1], "replicas": 2}], "of 2 replicas"),
        ([{"stages": [1], "offload": True}], "no host memory"),
    ],
)
def test_cuts_that_cannot_be_given(wrong: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        search(COSTS, ipus=2, micro_batches=8, consider=wrong)
