"""Tables of papers, row by row, against what a schedule takes in simulation."""

from __future__ import annotations

from collections import Counter

import pytest

from lowering import schedules
from lowering.schedules import Schedule, simulate
from tests.lowering.schedules.checker import ipus_of, labels

IN_A_V = ("zbv", "v_half", "v_min", "dualpipe_v")
MANY = 512  # micro-batches


def build(name: str, ipus: int, micro_batches: int) -> Schedule:
    stages = 2 * ipus if name in IN_A_V else ipus
    return getattr(schedules, name)(stages, micro_batches)


def longest_pause(schedule: Schedule) -> int:
    """The ticks from the first to the last task of an IPU without a task, the most of all."""
    busy: dict[int, list[int]] = {}
    for tick, tasks in enumerate(labels(schedule)):
        for stage, _, batch in tasks:
            for ipu in ipus_of(schedule, stage, batch):
                busy.setdefault(ipu, []).append(tick)
    return max(ticks[-1] - ticks[0] + 1 - len(ticks) for ticks in busy.values())


def transfers(schedule: Schedule) -> int:
    """Results and gradients that go to another IPU."""
    sent = Counter(
        letter
        for tick in labels(schedule)
        for stage, letter, batch in tick
        for other in [stage - 1 if letter == "F" else stage + 1]
        if letter in "FB" and 0 <= other < schedule.stages
        if ipus_of(schedule, other, batch) != ipus_of(schedule, stage, batch)
    )
    return sent.total()


@pytest.mark.parametrize(
    ("name", "bubble", "most_memory", "traffic"),
    [
        ("zero_bubble_h1", 1 / 3, 1, 1),
        ("zero_bubble_h2", 0, 2, 1),
        ("zbv", 0, 1, 2),
        ("v_half", 1 / 2, 1 / 2, 2),
        ("v_min", 2 / 3, 1 / 3, 2),
    ],
)
@pytest.mark.parametrize("ipus", [4, 8, 12])
def test_zero_bubble_against_1f1b(
    name: str, bubble: float, most_memory: float, traffic: int, ipus: int
) -> None:
    """The table in README.md of github.com/sail-sg/zero-bubble-pipeline-parallelism, F = B = W.

    Shares of 1F1B's bubble, activations and traffic. Those of a schedule in a V are rounded there:
    its memory is the one of the next table, and its bubble at most a tick for each IPU more.
    """
    plain, other = build("one_f_one_b", ipus, 48), build(name, ipus, 48)
    plain_pause = simulate(plain, {"F": 1, "B": 2}).makespan - 3 * 48
    assert plain_pause / (plain_pause + 3 * 48) == (ipus - 1) / (48 + ipus - 1)
    pause = longest_pause(other)
    if name in IN_A_V:
        # A stage takes half as long there, so that two of its ticks are one of 1F1B's.
        assert pause / 2 <= bubble * plain_pause + (ipus + 1) / 2
    else:
        assert pause == pytest.approx(bubble * plain_pause)
    stages_per_ipu = other.stages // ipus
    held = max(simulate(other).in_flight_per_ipu) / stages_per_ipu
    assert held <= most_memory * ipus + (4 / 3 if name in IN_A_V else 0)
    assert transfers(other) == traffic * transfers(plain)


@pytest.mark.parametrize("ipus", range(1, 17))
def test_activations_of_schedules_in_a_v(ipus: int) -> None:
    """Activation memory in micro-batches: Qi et al., arXiv 2405.15362."""
    expected = {"v_min": (ipus + 4) // 3, "v_half": (ipus + 2) // 2, "zbv": ipus}
    for name, memory in expected.items():
        run = simulate(build(name, ipus, 3 * ipus + 2))
        assert max(run.in_flight_per_ipu) == 2 * memory


@pytest.mark.parametrize(("name", "share"), [("zbv", 0), ("v_half", 1 / 2), ("v_min", 2 / 3)])
@pytest.mark.parametrize("ipus", [2, 4, 6, 8, 12, 16])
def test_bubble_rates_of_schedules_in_a_v(name: str, share: float, ipus: int) -> None:
    """About 0, p / 2m and 2p / 3m of the time, of many micro-batches: arXiv 2405.15362."""
    pause = simulate(build(name, ipus, MANY)).makespan - 6 * MANY
    assert pause / (6 * MANY) <= (share * ipus + ipus / 3) / MANY


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_deepseeks_comparison(stages: int) -> None:
    """The table in README.md of github.com/deepseek-ai/DualPipe, by the same number of stages.

    B is there the whole backward pass. A forward and a backward task that overlap there are one
    after the other here, F&B = F + B, with bubbles that are at most as long as the table's.
    """
    forward, whole, weight, count = 3, 6, 2, 2 * stages
    times = {"F": forward, "B": whole - weight, "W": weight}

    def row(name: str) -> tuple[float, int, int]:
        schedule = getattr(schedules, name)(stages, count)
        splits = schedule.splits_backward
        run = simulate(schedule, times if splits else {"F": forward, "B": whole})
        copies = len(schedule.copies)
        per_ipu = copies * stages // len(run.in_flight_per_ipu)
        work = per_ipu // copies * count * (forward + whole)
        return run.makespan - work, per_ipu, max(run.in_flight_per_ipu)

    others = stages - 1
    assert row("one_f_one_b") == (others * (forward + whole), 1, stages)
    assert row("zero_bubble_h1") == (others * (forward + whole - 2 * weight), 1, stages)
    bound = (stages // 2 - 1) * (forward + whole + whole - 3 * weight)
    bubble, parameters, activations = row("dualpipe")
    assert bubble <= bound
    assert (parameters, activations) == (2, stages + 1)
    bubble, parameters, activations = row("dualpipe_v")
    assert bubble <= bound
    assert (parameters, activations) == (2, stages + 1)


@pytest.mark.parametrize("depth", [2, 4, 6, 8, 12])
def test_chimeras_comparison(depth: int) -> None:
    """Bubble ratios and activations of Table 2: Li and Hoefler, arXiv 2107.06925, F = B."""
    count = 2 * depth
    expected = {  # of the makespan; from the fewest to the most micro-batches on an IPU
        "gpipe": ((depth - 1) / (count + depth - 1), (count, count)),
        "one_f_one_b": ((depth - 1) / (count + depth - 1), (1, depth)),
        "chimera": ((depth - 2) / (2 * count + depth - 2), (depth // 2 + 1, depth)),
    }
    for name, (ratio, activations) in expected.items():
        run = simulate(getattr(schedules, name)(depth, count), {"F": 1, "B": 1})
        assert 1 - 2 * count / run.makespan == pytest.approx(ratio)
        assert (min(run.in_flight_per_ipu), max(run.in_flight_per_ipu)) == activations


@pytest.mark.parametrize(("ipus", "loops"), [(2, 2), (4, 2), (4, 4), (8, 3)])
def test_interleaving_divides_the_bubble(ipus: int, loops: int) -> None:
    """(p - 1) / (v m) of the work: Narayanan et al., 2104.04473; Lamy-Poirier, 2211.05953."""
    count = 4 * ipus
    placing = [stage % ipus for stage in range(loops * ipus)]
    for builder in (schedules.interleaved_one_f_one_b, schedules.looped_bfs):
        run = simulate(builder(loops * ipus, count, ipus=placing), {"F": 1, "B": 2})
        work = 3 * loops * count
        assert (run.makespan - work) / work == pytest.approx((ipus - 1) / (loops * count))
