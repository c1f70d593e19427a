"""Costs and searches that are refused, and what plans say of themselves."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest

from ipujax.errors import PlanError
from ipujax.planning import Costs, search
from lowering import svg


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"forward": []}, "no segment"),
        ({"forward": 3}, "3 as forward"),
        ({"forward": [1, -1]}, r"-1 as forward\[1\]"),
        ({"backward": [1]}, "1 numbers in backward, not 2"),
        ({"backward": [1, float("nan")]}, r"nan as backward\[1\]"),
        ({"weight": [1, None]}, r"None as weight\[1\]"),
        ({"cut_bytes": [1, 2]}, "2 numbers in cut_bytes, not 1"),
        ({"skips": [(1, 0, 4)]}, "from segment 1 to segment 0"),
        ({"skips": [(0, 2, 4)]}, "from segment 0 to segment 2"),
        ({"skips": [1]}, r"\[1\] as skips"),
        ({"skips": [(0.5, 1.5, 4)]}, r"\[\(0\.5, 1\.5, 4\)\] as skips"),
        ({"tied_bytes": [(1, 0, 4)]}, "tied bytes from segment 1 to segment 0"),
        ({"bytes_per_second": 0}, "nothing could pass"),
        ({"latency": float("inf")}, "inf as latency"),
        ({"host_bytes_per_second": -1}, "-1 as host_bytes_per_second"),
        ({"shared_bytes": [(1, 1, 4)]}, "shared bytes from segment 1 to segment 1"),
        ({"shared_bytes": [(0, 1, -4)]}, "-4 as shared bytes"),
        ({"shared_bytes": [(0, 1, 4)]}, "segment 1 shares 4 bytes with earlier ones, and keeps 0"),
    ],
)
def test_costs_that_cannot_be(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Costs(**({"forward": [1, 2], "backward": [1, 2]} | wrong))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ipus": 0}, "ipus is 0"),
        ({"ipus": 1.5}, "ipus is 1.5"),
        ({"micro_batches": ()}, "micro_batches is empty"),
        ({"micro_batches": (4, 0)}, "a number in micro_batches is 0"),
        ({"schedules": "fastest"}, "'fastest'"),
        ({"schedules": []}, "schedules is empty"),
        ({"recompute": (1,)}, "an entry of recompute"),
        ({"offload": ()}, "offload is empty"),
        ({"replicas": (0,)}, "a number in replicas"),
        ({"memory": 0}, "nothing fits"),
        ({"memory": [1, 2, 3]}, "3 entries for 2 IPUs"),
        ({"budget_seconds": 0}, "no time"),
        ({"schedules": "grouped", "micro_batches": 3, "replicas": (2,)}, "no schedule can have"),
        ({"schedules": "zbv", "ipus": 1}, "splits the backward pass"),
        ({"schedules": ("looped_bfs",), "ipus": 1}, "no schedule can have"),
        ({"costs": 3}, "costs is 3"),
    ],
)
def test_searches_that_cannot_be(wrong: dict[str, Any], words: str) -> None:
    given = {"costs": Costs([1, 2], [1, 2]), "ipus": 2, "micro_batches": 4}
    with pytest.raises(PlanError, match=words):
        search(**(given | wrong))


def test_a_plan_tells_why_the_others_lost() -> None:
    costs = Costs([1, 2, 3, 2], [2, 4, 6, 4], activation_bytes=[9] * 4)
    plan = search(costs, ipus=2, micro_batches=8, schedules=("gpipe", "one_f_one_b"), memory=80)
    assert plan.schedule == "one_f_one_b"
    why = {(row.schedule, row.recompute): row.why for row in plan.considered}
    assert why["one_f_one_b", False] == "chosen"
    assert why["gpipe", False] == "does not fit: lacks 64 bytes on an IPU"
    assert why["gpipe", True].endswith("% slower")
    text = str(plan)
    assert "one_f_one_b of 2 stages, 8 micro-batches" in text
    assert "lacks 64 bytes" in text
    assert [stage.segments for stage in plan.stages] == [(0, 2), (2, 4)]


def test_of_equally_fast_schedules_the_one_that_needs_least_memory_is_chosen() -> None:
    costs = Costs([1] * 4, [2] * 4, activation_bytes=[1] * 4)
    plan = search(costs, ipus=4, micro_batches=8, schedules=("gpipe", "one_f_one_b"))
    assert plan.schedule == "one_f_one_b"
    assert plan.seconds == (8 + 3) * 3
    assert plan.gap == 0
    assert plan.bubble == pytest.approx(3 / 11)
    assert plan.peak_bytes == (4, 3, 2, 1)


def test_a_plan_may_leave_ipus_out() -> None:
    costs = Costs([1, 1], [1, 1], cut_bytes=[100], bytes_per_second=1.0)
    plan = search(costs, ipus=2, micro_batches=2)
    assert len(plan.stages) == 1
    assert plan.seconds == 8


def test_long_searches_show_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = Costs([1, 2, 3], [2, 4, 6])
    search(costs, ipus=2, micro_batches=4)
    assert "plan:" not in capsys.readouterr().err
    monkeypatch.setattr("ipujax.ground.progress_line._QUIET_SECONDS", -1.0)
    search(costs, ipus=2, micro_batches=4, schedules="gpipe", recompute=False)
    assert "plan: 2 of 2, gpipe" in capsys.readouterr().err


def test_an_interrupted_search_gives_the_best_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[str] = []

    def interrupt(*_: Any) -> None:
        interrupted.append("here")
        raise KeyboardInterrupt

    costs = Costs([1, 7, 3, 4, 1, 5, 2], [2, 4, 9, 8, 2, 1, 6])
    monkeypatch.setattr("ipujax.planner.candidate.find_fastest_cut", interrupt)
    plan = search(costs, ipus=2, micro_batches=4, schedules="interleaved_one_f_one_b")
    assert interrupted
    assert not plan.proven
    assert plan.seconds < 4 * (23 + 32)
    monkeypatch.setattr("ipujax.planner.candidate.find_rough_cut", interrupt)
    with pytest.raises(KeyboardInterrupt):
        search(costs, ipus=3, micro_batches=4)


@pytest.mark.exhaustive
def test_long_chains_are_planned_in_the_time_that_there_is() -> None:
    numbers = np.random.default_rng(0)
    costs = Costs(numbers.uniform(0.5, 1.5, 400), numbers.uniform(1, 3, 400))
    started = time.process_time()
    plan = search(costs, ipus=16, micro_batches=32, schedules="one_f_one_b", budget_seconds=5)
    assert time.process_time() - started < 60  # a fence, far from what it takes
    assert plan.gap < 0.06


def test_labels_of_stages_end_before_their_bars() -> None:
    plan = search(Costs([1] * 120, [1] * 120), ipus=2, micro_batches=2, schedules="gpipe")
    text = plan._repr_html_()
    labels = [*re.finditer(r">(IPU \d, \d+-\d+)<", text)]
    assert len(labels) == 2
    for label in labels:
        bar = re.search(r'<rect x="([\d.]+)"', text[label.end() :])
        assert bar is not None
        assert svg.width_of_text(label[1]) < float(bar[1])
