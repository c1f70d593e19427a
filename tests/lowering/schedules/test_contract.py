"""What every schedule of the registry must do, whatever its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lowering import schedules
from lowering.schedules import Schedule, ScheduleError, build, list_schedules, simulate
from tests.lowering.schedules.checker import check, in_flight, most_tasks_in_a_tick

SIZES = [(2, 4), (4, 8), (6, 12)]
SPREAD_IPUS = [(0, 1), 2, (3, 4, 5), 6, 7, (8, 9)]
every_schedule = pytest.mark.parametrize(
    "builder", [pytest.param(schedule.build, id=schedule.name) for schedule in list_schedules()]
)
Builder = Callable[..., Schedule]


def build_all_sizes(builder: Builder) -> Iterator[Schedule]:
    """Yields the schedule in every size, for training and, unless it refuses it, inference."""
    for stages, micro_batches in SIZES:
        yield builder(stages, micro_batches)
        yield builder(stages, micro_batches, ipus=SPREAD_IPUS[:stages])
        try:
            yield builder(stages, micro_batches, training=False)
        except ScheduleError as error:
            assert error.fix  # noqa: PT017


@every_schedule
def test_every_task_runs_once_and_after_what_it_needs(builder: Builder) -> None:
    for schedule in build_all_sizes(builder):
        check(schedule)


@every_schedule
def test_the_simulation_agrees_with_the_ticks(builder: Builder) -> None:
    for schedule in build_all_sizes(builder):
        run = simulate(schedule)
        assert run.ticks == len(schedule.ticks)
        assert run.tasks == schedule.num_tasks
        assert 0 <= run.bubble < 1
        assert 0 < run.utilisation <= 1
        assert run.makespan <= run.synced_makespan


@every_schedule
def test_queues_hold_no_more_than_the_micro_batches_in_flight(builder: Builder) -> None:
    for schedule in build_all_sizes(builder):
        run = simulate(schedule)
        for stage in range(schedule.stages):
            count = in_flight(schedule, stage) if schedule.training else 1
            assert run.in_flight[stage] == count <= schedule.micro_batches
            assert run.fifo_depth[stage] == count - 1


@every_schedule
def test_an_ipu_runs_at_most_a_task_of_each_phase_in_a_tick(builder: Builder) -> None:
    for schedule in build_all_sizes(builder):
        for ipu in {ipu for group in schedule.ipus for ipu in group}:
            assert most_tasks_in_a_tick(schedule, ipu) <= 1 + schedule.training


@every_schedule
def test_its_text_and_its_function_build_it_again(builder: Builder) -> None:
    for schedule in build_all_sizes(builder):
        assert schedules.from_text(schedules.to_text(schedule)) == schedule
    spread = builder(3, 6, ipus=SPREAD_IPUS[:3])
    assert spread.ipus == ((0, 1), (2,), (3, 4, 5))
    sizes = {"stages": 3, "micro_batches": 6, "training": True, "ipus": SPREAD_IPUS[:3]}
    assert build(builder, **sizes) == build(spread, **sizes) == spread


@every_schedule
def test_small_grids(builder: Builder, golden: Callable[..., None]) -> None:
    golden(str(builder(4, 8)))


@every_schedule
def test_a_million_micro_batches_take_few_runs(builder: Builder) -> None:
    schedule = builder(4, 10**6)
    assert sum(len(run.ticks) for run in schedule.ticks.runs) < 100
    assert simulate(schedule).tasks == schedule.num_tasks


def test_names_and_ranks_are_unique() -> None:
    registered = list_schedules()
    assert all(schedule.name == schedule.build.__name__ for schedule in registered)
    assert len({schedule.rank for schedule in registered}) == len(registered)


def test_a_name_is_registered_once() -> None:
    schedule = list_schedules()[0]

    def register_again() -> None:
        schedules.register_schedule(rank=1)(schedule.build)

    with pytest.raises(ScheduleError, match=f"two schedules are named `{schedule.name}`"):
        register_again()
    assert list_schedules()[0] is schedule
