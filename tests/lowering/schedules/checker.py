"""What a schedule must be, checked slowly and without the code under test."""

from __future__ import annotations

from collections import Counter

from lowering.schedules import Schedule


def labels(schedule: Schedule) -> list[list[tuple[int, str, int]]]:
    return [[(t.stage, str(t.phase), t.micro_batch) for t in tick] for tick in schedule.ticks]


def check(schedule: Schedule) -> None:
    """Every task once, each after what it needs; fails with the task."""
    letters = ["F"]
    if schedule.training:
        letters += (
            ["B", "W"] if "W" in {p for tick in labels(schedule) for _, p, _ in tick} else "B"
        )
    found = Counter(task for tick in labels(schedule) for task in tick)
    wanted = {
        (stage, letter, batch)
        for stage in range(schedule.stages)
        for letter in letters
        for batch in range(schedule.micro_batches)
    }
    assert set(found) == wanted
    assert set(found.values()) == {1}
    at = {
        task: (number, place)
        for number, tick in enumerate(labels(schedule))
        for place, task in enumerate(tick)
    }
    last = schedule.stages - 1
    for stage, letter, batch in wanted:
        before: list[tuple[int, str, int]] = []
        if letter == "F" and stage > 0:
            before = [(stage - 1, "F", batch)]
        if letter == "B":
            before = [(stage, "F", batch)]
            before += [(stage + 1, "B", batch)] if stage < last else []
        if letter == "W":
            before = [(stage, "B", batch)]
        for other in before:
            here, there = at[stage, letter, batch], at[other]
            same = schedule.ipus[stage] == schedule.ipus[other[0]]
            assert there < here, (other, (stage, letter, batch))
            assert there[0] < here[0] or same, (other, (stage, letter, batch))


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
        sum(ipu in schedule.ipus[stage] for stage, _, _ in tick) for tick in labels(schedule)
    )


def makespan(schedule: Schedule, seconds: dict[str, list[float]], transfer: list[float]) -> float:
    """The end of the last task where each starts once its IPUs and inputs are there."""
    ends: dict[tuple[int, str, int], float] = {}
    free = {ipu: 0.0 for group in schedule.ipus for ipu in group}
    for stage, letter, batch in (task for tick in labels(schedule) for task in tick):
        group = schedule.ipus[stage]
        other = {"F": stage - 1, "B": stage + 1, "W": stage}[letter]
        start = max(free[ipu] for ipu in group)
        if letter != "W" and 0 <= other < schedule.stages:
            away = not set(group) & set(schedule.ipus[other])
            start = max(start, ends[other, letter, batch] + away * transfer[min(stage, other)])
        end = ends[stage, letter, batch] = start + seconds[letter][stage]
        free |= dict.fromkeys(group, end)
    return max(ends.values())


def holdings(
    schedule: Schedule, seconds: dict[str, list[float]], transfer: list[float], sizes: list[float]
) -> list[tuple[float, int, float]]:
    """The (time, IPU, change in bytes) at the start of forward tasks and the end of the last."""
    ends: dict[tuple[int, str, int], float] = {}
    free = {ipu: 0.0 for group in schedule.ipus for ipu in group}
    changes: list[tuple[float, int, float]] = []
    letters = {letter for tick in labels(schedule) for _, letter, _ in tick}
    last = "W" if "W" in letters else "B" if "B" in letters else "F"
    for stage, letter, batch in (task for tick in labels(schedule) for task in tick):
        group = schedule.ipus[stage]
        other = {"F": stage - 1, "B": stage + 1, "W": stage}[letter]
        start = max(free[ipu] for ipu in group)
        if letter != "W" and 0 <= other < schedule.stages:
            away = not set(group) & set(schedule.ipus[other])
            start = max(start, ends[other, letter, batch] + away * transfer[min(stage, other)])
        end = ends[stage, letter, batch] = start + seconds[letter][stage]
        free |= dict.fromkeys(group, end)
        for ipu in group:
            changes += [(start, ipu, sizes[stage])] if letter == "F" else []
            changes += [(end, ipu, -sizes[stage])] if letter == last else []
    return changes
