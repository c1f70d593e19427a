"""Schedules as users give them: made ones, functions, texts and orders."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from lowering import schedules
from lowering.schedules import Phase, Schedule, ScheduleError, Task, build, to_text


def one_after_another(stages, micro_batches):
    return [
        [f"{stage}{phase}{i}" for i in range(micro_batches) for phase in "FB"]
        for stage in range(stages)
    ]


def built(spec: object, **options: object) -> Schedule:
    pipeline = {"stages": 3, "micro_batches": 6, "training": True} | options
    return build(spec, **pipeline)


def refused(spec: object, **options: object) -> str:
    with pytest.raises(ScheduleError) as caught:
        built(spec, **options)
    return str(caught.value)


def test_a_partial_function_may_be_given() -> None:
    spec = functools.partial(schedules.sequential, batch_serialization=3)
    schedule = built(spec, ipus=[2, (1, 3), 0])
    assert schedule == spec(3, 6, ipus=[2, (1, 3), 0])
    assert built(schedule) is schedule


def test_io_tiles_reach_the_function() -> None:
    assert built(schedules.grouped, micro_batches=9, io_tiles=True).micro_batches == 9


def test_only_the_keywords_of_the_signature_are_given() -> None:
    seen: list[object] = []

    def plain(stages: int, micro_batches: int) -> object:
        seen.append(())
        return schedules.gpipe(stages, micro_batches)

    def some(s: int, m: int, *, training: bool) -> object:
        seen.append(training)
        return schedules.gpipe(s, m, training=training)

    def every(s: int, m: int, **options: object) -> object:
        seen.append(sorted(options))
        return schedules.gpipe(s, m)

    for function in (plain, some, every):
        built(function)
    assert seen == [(), True, ["io_tiles", "ipus", "training"]]


def test_results_of_every_form() -> None:
    wanted = built(one_after_another)
    assert wanted.name == "one_after_another"
    assert wanted.ticks == schedules.sequential(3, 6).ticks
    labels = one_after_another(3, 6)
    forms = [
        wanted,
        to_text(wanted),
        labels,
        {ipu: order for ipu, order in enumerate(labels)},
        [" ".join(order) for order in labels],
        [list(map(Task.parse, order)) for order in labels],
        [[(int(x[0]), x[1], int(x[2])) for x in order] for order in labels],
        ((Task.parse(x) for x in order) for order in labels),
    ]
    for form in forms:
        assert built(lambda stages, count, form=form: form).ticks == wanted.ticks


def test_a_class_may_be_the_function() -> None:
    class Mine:
        def __call__(self, stages: int, micro_batches: int) -> object:
            return one_after_another(stages, micro_batches)

    assert built(Mine()).name == "Mine"


def test_mistakes_name_the_function_and_its_line(golden: Callable[..., None]) -> None:
    def backwards(stages: int, micro_batches: int) -> object:
        return [order[::-1] for order in one_after_another(stages, micro_batches)]

    text = refused(backwards)
    golden(text.replace(__file__, "FILE").replace(str(backwards.__code__.co_firstlineno), "LINE"))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "it gave None"),
        (7, "it gave 7"),
        ([1, 2, 3], "it gave 1 as the order of an IPU"),
        ([Task(0, Phase.FORWARD, 0)] * 3, "as the order of an IPU"),
        ([[1], [2], [3]], "1 is no task"),
        ([["0X0"]] * 3, "'0X0' is no task"),
        ([[(0, "X", 0)]] * 3, "(0, 'X', 0) is no task"),
        ([[], [], []], "0F0 is missing in the order of IPU 0"),
        ([[]], "1 orders for the 3 IPUs [0, 1, 2]"),
        ("0F0", "begins with '0F0'"),
        (schedules.gpipe(2, 6), "has stages=2, the pipeline stages=3"),
        (schedules.gpipe(3, 5), "has micro_batches=5, the pipeline micro_batches=6"),
        (schedules.gpipe(3, 6, training=False), "has training=False, the pipeline training=True"),
    ],
)
def test_results_that_are_no_schedule(made: object, words: str) -> None:
    def mine(stages: int, micro_batches: int) -> object:
        return made

    text = refused(mine)
    assert "mine` gave is no schedule for this pipeline" in text
    assert words in text
    assert f"{__file__}:" in text


def test_the_stages_ipus_must_be_the_pipelines() -> None:
    def mine(stages: int, micro_batches: int) -> Schedule:
        return schedules.gpipe(stages, micro_batches)

    assert "has ipus=((0,), (1,), (2,)), the pipeline ipus=((0,), (2,), (1,))" in refused(
        mine, ipus=[0, 2, 1]
    )
    assert built(mine, ipus=[0, 1, 2]).name == "gpipe"


def test_schedules_that_were_made_are_checked_too() -> None:
    schedule = schedules.gpipe(3, 6)
    assert "the pipeline micro_batches=7" in refused(schedule, micro_batches=7)
    broken = Schedule(
        name="broken",
        stages=3,
        micro_batches=6,
        training=True,
        ipus=schedule.ipus,
        ticks=schedule.ticks[::-1],
    )
    assert "broken: 0B5 in tick 0 needs 0F5" in refused(broken)


def test_what_is_neither() -> None:
    assert "3 as a schedule" in refused(3)
    assert "no schedule is named '2f2b'" in refused("2f2b")


def test_functions_that_cannot_be_called() -> None:
    def alone(stages: int) -> None: ...

    def more(stages: int, micro_batches: int, depth: int) -> None: ...

    assert "`alone(stages: 'int') -> 'None'` cannot be called" in refused(alone)
    assert "missing a required argument: 'depth'" in refused(more)


def test_errors_of_the_function_pass_as_they_are() -> None:
    def mine(stages: int, micro_batches: int) -> object:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        built(mine)
    assert refused(schedules.grouped, micro_batches=5).startswith("5 micro-batches in the grouped")


def test_builtins_without_a_signature() -> None:
    assert "what `max` gave is no schedule for this pipeline: it gave 6" in refused(max)
