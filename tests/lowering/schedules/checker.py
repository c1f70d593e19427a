"""What a schedule must be, checked slowly and without the code under test."""

from __future__ import annotations

from collections import Counter

from lowering.schedules import Schedule


def labels(schedule: Schedule) -> list[list[tuple[int, str, int]]]:
    return [[(t.stage, str(t.phase), t.micro_batch) for t in tick] for tick in schedule.ticks]


def ipus_of(schedule: Schedule, stage: int, batch: int) -> tuple[int, ...]:
    """The IPUs of a stage, in the copy that the micro-batch passes through."""
    return schedule.copies[schedule.copy_pattern[batch % len(schedule.copy_pattern)]][stage]


def all_ipus(schedule: Schedule) -> set[int]:
    return {ipu for copy in schedule.copies for group in copy for ipu in group}


def check(schedule: Schedule) -> None:
    """Every task once, each after what it needs; fails with the task."""
    written = {(stage, letter) for tick in labels(schedule) for stage, letter, _ in tick}
    letters = ["F"]
    if schedule.training:
        letters += ["B", "W"] if "W" in {letter for _, letter in written} else "B"
    found = Counter(task for tick in labels(schedule) for task in tick)
    wanted = {
        (stage, letter, batch)
        for stage in range(schedule.stages)
        for letter in [*letters, *(more for more in "ROL" if (stage, more) in written)]
        for batch in range(schedule.micro_batches)
    }
    assert set(found) == wanted
    assert set(found.values()) == {1}
    at = {
        task: (number, place)
        for number, tick in enumerate(labels(schedule))
        for place, task in enumerate(tick)
    }
    for stage, letter, batch in wanted:
        needed = [
            *before_on_stage(written, stage, letter),
            *before_elsewhere(schedule, stage, letter),
        ]
        before = [(other, needed_letter, batch) for other, needed_letter in needed]
        position = batch % schedule.segments
        if letter == "F" and position:
            before.append((stage, "F", batch - 1))
        if letter == "B" and position + 1 < schedule.segments:
            before.append((stage, "B", batch + 1))
        for other in before:
            here, there = at[stage, letter, batch], at[other]
            same = ipus_of(schedule, stage, batch) == ipus_of(schedule, other[0], batch)
            assert there < here, (other, (stage, letter, batch))
            assert there[0] < here[0] or same, (other, (stage, letter, batch))


def before_on_stage(
    written: set[tuple[int, str]], stage: int, letter: str
) -> list[tuple[int, str]]:
    """The task of the same stage and micro-batch that runs before, of those that are written."""
    order = ["F", "O", "L", "R", "B", "W"]
    own = [one for one in order if one in "FBW" or (stage, one) in written]
    place = own.index(letter)
    return [(stage, own[place - 1])] if place else []


def before_elsewhere(schedule: Schedule, stage: int, letter: str) -> list[tuple[int, str]]:
    """The tasks of other stages that are waited for."""
    for (phase, kind_stage), others in schedule.needs_table:
        if (kind_stage, phase) == (stage, letter):
            return [(other, str(other_phase)) for other_phase, other in others]
    steps = {"F": -1, "B": 1}
    other = stage + steps[letter] if letter in steps else schedule.stages
    return [(other, letter)] if 0 <= other < schedule.stages else []


def in_flight(schedule: Schedule, stage: int) -> int:
    """The most micro-batches between the stage's forward task and its last one."""
    order = [task for tick in labels(schedule) for task in tick if task[0] == stage]
    end = "W" if any(letter == "W" for _, letter, _ in order) else "B"
    alive: set[int] = set()
    most = 0
    for _, letter, batch in order:
        if letter == "F":
            alive.add(batch)
        if letter == end:
            alive.discard(batch)
        most = max(most, len(alive))
    return most


def most_tasks_in_a_tick(schedule: Schedule, ipu: int) -> int:
    return max(
        sum(ipu in ipus_of(schedule, stage, batch) for stage, _, batch in tick)
        for tick in labels(schedule)
    )


def times(
    schedule: Schedule, seconds: dict[str, list[float]], transfer: list[float]
) -> dict[tuple[int, str, int], tuple[float, float]]:
    """When each task starts and ends, if it starts once its IPUs and inputs are there."""
    runs: dict[tuple[int, str, int], tuple[float, float]] = {}
    free = dict.fromkeys(all_ipus(schedule), 0.0)
    for stage, letter, batch in (task for tick in labels(schedule) for task in tick):
        group = ipus_of(schedule, stage, batch)
        start = max(free[ipu] for ipu in group)
        for other, other_letter in before_elsewhere(schedule, stage, letter):
            away = not set(group) & set(ipus_of(schedule, other, batch))
            end = runs[other, other_letter, batch][1]
            start = max(start, end + away * transfer[min(stage, other)])
        runs[stage, letter, batch] = start, start + seconds[letter][stage]
        free |= dict.fromkeys(group, start + seconds[letter][stage])
    return runs


def makespan(schedule: Schedule, seconds: dict[str, list[float]], transfer: list[float]) -> float:
    """The end of the last task."""
    return max(end for _, end in times(schedule, seconds, transfer).values())


def holdings(
    schedule: Schedule, seconds: dict[str, list[float]], transfer: list[float], sizes: list[float]
) -> list[tuple[float, int, float]]:
    """The (time, IPU, change in bytes) at which stages begin and end to keep a micro-batch."""
    changes: list[tuple[float, int, float]] = []
    written = {(stage, letter) for tick in labels(schedule) for stage, letter, _ in tick}
    last = next(letter for letter in "WBF" if letter in {letter for _, letter in written})
    for (stage, letter, batch), (start, end) in times(schedule, seconds, transfer).items():
        pauses = {"FR"} if (stage, "R") in written else {"OL"} if (stage, "O") in written else set()
        begins = letter == "F" or any(letter == pause[1] for pause in pauses)
        ends = letter == last or any(letter == pause[0] for pause in pauses)
        for ipu in ipus_of(schedule, stage, batch):
            changes += [(start, ipu, sizes[stage])] if begins else []
            changes += [(end, ipu, -sizes[stage])] if ends else []
    return changes
