"""The public face of schedules, and schedules in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipujax import schedules
from lowering import schedules as inner


def test_the_public_names_are_the_compilers() -> None:
    others = {"FoundSchedule", "load", "names", "playground", "save", "search"}
    for name in {*dir(schedules)} - others:
        assert getattr(schedules, name) is getattr(inner, name)


def test_the_example_of_the_docstring(tmp_path: Path) -> None:
    schedule = schedules.grouped(4, 16)
    run = schedules.simulate(schedule)
    assert (run.bubble, run.fifo_depth) == (pytest.approx(1 / 3), (6, 4, 2, 0))

    def all_forward_first(stages, micro_batches):
        batches = range(micro_batches)
        return [[f"{s}{p}{m}" for p in "FB" for m in batches] for s in range(stages)]

    made = schedules.build(all_forward_first, stages=4, micro_batches=16, training=True)
    assert made.ticks == schedules.gpipe(4, 16).ticks


def test_files_keep_schedules(tmp_path: Path) -> None:
    for schedule in (schedules.grouped(4, 16), schedules.zero_bubble(3, 5)):
        path = tmp_path / "a.schedule"
        schedules.save(schedule, path)
        assert schedules.load(path) == schedule
        assert schedules.load(str(path)) == schedule
        assert path.read_text() == schedules.to_text(schedule)


def test_every_loss_of_the_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule"
    text = schedules.to_text(schedules.one_f_one_b(2, 11))
    for length in range(len(text) - 1):
        path.write_text(text[:length])
        with pytest.raises(schedules.ScheduleError, match=r"a\.schedule"):
            schedules.load(path)


@pytest.mark.parametrize("data", [None, b"\xff\xfe", b"", b"hello"])
def test_files_that_hold_no_schedule(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.schedule"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(schedules.ScheduleError, match=r"a\.schedule"):
        schedules.load(path)
    with pytest.raises(schedules.ScheduleError, match="no schedule can be read"):
        schedules.load(tmp_path)


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(schedules.ScheduleError, match="cannot be written"):
        schedules.save(schedules.gpipe(2, 2), tmp_path / "nowhere" / "a.schedule")


def test_broken_schedules_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule"
    path.write_text("schedule a: stages=2 micro_batches=1 training=no ipus=0/1\n1F0\n0F0\n")
    with pytest.raises(schedules.ScheduleError, match="1F0 in tick 0 needs 0F0"):
        schedules.load(path)
