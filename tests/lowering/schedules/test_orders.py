"""Schedules from each IPU's list of tasks, and what is said of lists that do not work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.schedules import Schedule, ScheduleError, Task, from_orders, simulate
from tests.lowering.schedules.checker import check


def tasks(text: str) -> list[Task]:
    return [Task.parse(label) for label in text.split()]


def made(*orders: str, stages: int = 2, micro_batches: int = 1, **options: object) -> Schedule:
    return from_orders(
        "mine",
        [tasks(order) for order in orders],
        stages=stages,
        micro_batches=micro_batches,
        **options,
    )


def refused(*orders: str, **options: object) -> str:
    with pytest.raises(ScheduleError) as caught:
        made(*orders, **options)
    return str(caught.value)


def test_each_task_is_as_early_as_it_can_be() -> None:
    schedule = made("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", micro_batches=2)
    assert schedule.ticks == tuple(
        tuple(tasks(tick)) for tick in ("0F0", "1F0 0F1", "1B0", "0B0 1F1", "1B1", "0B1")
    )


def test_orders_may_be_given_by_ipu() -> None:
    orders = {7: tasks("1F0 1B0"), 3: tasks("0F0 0B0")}
    schedule = from_orders("mine", orders, stages=2, micro_batches=1, ipus=[3, 7])
    assert str(schedule).splitlines()[2:] == [
        "IPU 3   F0 .  .  B0",
        "IPU 7   .  F0 B0 .",
    ]


def test_a_task_on_several_ipus_is_in_the_order_of_each() -> None:
    schedule = made("0F0 0F1 1F0 1F1", "1F0 1F1", micro_batches=2, training=False, ipus=[0, (0, 1)])
    assert [len(tick) for tick in schedule.ticks] == [1, 1, 1, 1]
    check(schedule)


@given(st.integers(1, 5), st.integers(1, 6), st.data())
def test_any_order_that_some_run_has_works(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    """Runs tasks that are ready at random, one by one; what each IPU ran is a possible order."""
    ipus = data.draw(
        st.lists(
            st.sets(st.integers(0, 2), min_size=1).map(sorted).map(tuple),
            min_size=stages,
            max_size=stages,
        )
    )
    splits = data.draw(st.booleans())
    word = [(s, "F") for s in range(stages)] + [(s, "B") for s in reversed(range(stages))]
    left = {batch: list(word) for batch in range(micro_batches)}
    weights: list[Task] = []
    orders: dict[int, list[Task]] = {ipu: [] for group in ipus for ipu in group}
    random = data.draw(st.randoms(use_true_random=False))
    while left or weights:
        if weights and (not left or random.random() < 0.3):
            task = weights.pop(random.randrange(len(weights)))
        else:
            batch = random.choice(sorted(left))
            stage, letter = left[batch].pop(0)
            task = Task.parse(f"{stage}{letter}{batch}")
            if not left[batch]:
                del left[batch]
            if letter == "B" and splits:
                weights.append(Task.parse(f"{stage}W{batch}"))
        for ipu in ipus[task.stage]:
            orders[ipu].append(task)
    schedule = from_orders("any", orders, stages=stages, micro_batches=micro_batches, ipus=ipus)
    check(schedule)
    simulate(schedule)
    for ipu, order in orders.items():
        ran = [task for tick in schedule.ticks for task in tick if ipu in ipus[task.stage]]
        assert ran == order


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.data())
def test_no_order_is_accepted_that_waits_for_ever(
    stages: int, micro_batches: int, swaps: int, data: st.DataObject
) -> None:
    """A sensible order with tasks swapped; whoever is stuck is named and marked in its row."""
    letters = data.draw(st.sampled_from(["FB", "FBW"]))
    ipus = data.draw(st.sampled_from([[*range(stages)], [s % 2 for s in range(stages)]]))
    flow = [(s, "F", m) for m in range(micro_batches) for s in range(stages)]
    flow += [(s, x, m) for m in range(micro_batches) for s in range(stages)[::-1] for x in "BW"]
    orders = [[t for t in flow if ipus[t[0]] == i and t[1] in letters] for i in sorted({*ipus})]
    for _ in range(swaps):
        order = data.draw(st.sampled_from(orders))
        one, other = (data.draw(st.integers(0, len(order) - 1)) for _ in range(2))
        order[one], order[other] = order[other], order[one]
    given_orders = ["".join(f"{s}{x}{m} " for s, x, m in order) for order in orders]
    stuck = run_until_stuck(orders, stages)
    if not stuck:
        check(made(*given_orders, stages=stages, micro_batches=micro_batches, ipus=ipus))
        return
    text = refused(*given_orders, stages=stages, micro_batches=micro_batches, ipus=ipus)
    assert "deadlock" in text
    rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("    IPU")}
    for ipu, (stage, letter, batch) in stuck.items():
        assert f"{stage}{letter}{batch} on IPU {ipu} waits for" in text
        several = ipus.count(ipu) > 1
        assert rows[str(ipu)].split()[-1] == f">{stage if several else ''}{letter}{batch}"


def run_until_stuck(
    orders: list[list[tuple[int, str, int]]], stages: int
) -> dict[int, tuple[int, str, int]]:
    """The task at which each IPU stops for ever, run one by one."""
    done: set[tuple[int, str, int]] = set()
    left = [list(order) for order in orders]
    runs = True
    while runs:
        runs = False
        for order in left:
            stage, letter, batch = order[0] if order else (0, "", 0)
            before = {
                "": None,
                "F": {(stage - 1, "F", batch)} if stage else set(),
                "B": {(stage, "F", batch), (min(stage + 1, stages - 1), "B", batch)}
                - {(stage, "B", batch)},
                "W": {(stage, "B", batch)},
            }[letter]
            if before is not None and before <= done:
                done.add(order.pop(0))
                runs = True
    return {ipu: order[0] for ipu, order in enumerate(left) if order}


def test_a_deadlock_is_drawn(golden: Callable[..., None]) -> None:
    orders = ("0F0 0F1 0B1 0B0", "1F0 1B0 1F1 1B1", "2F0 2F1 2B1 2B0")
    golden(refused(*orders, stages=3, micro_batches=2))


def test_a_deadlock_at_the_start_is_drawn_too(golden: Callable[..., None]) -> None:
    golden(refused("0B0 0F0", "1F0 1B0"))


def test_ipus_that_wait_for_one_another(golden: Callable[..., None]) -> None:
    golden(refused("0F0 0F1", "0F1 0F0", stages=1, micro_batches=2, training=False, ipus=[(0, 1)]))


def test_long_deadlocks_are_cut_short() -> None:
    orders = [f"{s}B0 {s}F0" for s in range(20)]
    text = refused(*orders, stages=20)
    assert "; and 12 more" in text
    assert len(text.splitlines()) < 30


@pytest.mark.parametrize(
    ("orders", "options", "words"),
    [
        (("0F0 0B0",), {}, "1 orders for the 2 IPUs [0, 1]"),
        (("0F0 0B0", "1F0"), {}, "1B0 is missing in the order of IPU 1"),
        (
            ("0F0 0B0 0F0", "1F0 1B0"),
            {},
            "0F0 is twice in the order of IPU 0, at positions 0 and 2",
        ),
        (
            ("0F0 1F0 0B0", "1B0"),
            {},
            "1F0 in the order of IPU 0 is no task of this IPU",
        ),
        (
            ("0F0 0B0", "1F0 1B0 1F1"),
            {},
            "1F1 in the order of IPU 1 is no task of this IPU, at position 2",
        ),
        (("0F0 0B0", "1F0 1B0"), {"training": False}, "0B0 in the order of IPU 0 is no task"),
        (("0F0 0B0 0W0", "1F0 1B0"), {}, "1W0 is missing in the order of IPU 1"),
        (("0F0 0B0 1F0 1B0", "1B0"), {"ipus": [0, (0, 1)]}, "1F0 is missing in the order of IPU 1"),
    ],
)
def test_orders_that_are_not_complete(
    orders: tuple[str, ...], options: dict[str, object], words: str
) -> None:
    assert words in refused(*orders, **options)


def test_orders_by_ipu_name_the_stages_ipus() -> None:
    with pytest.raises(ScheduleError, match=r"orders for the IPUs \[0\], stages on \[1\]"):
        from_orders("mine", {0: []}, stages=1, micro_batches=1, ipus=[1])
