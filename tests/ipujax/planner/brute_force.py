"""The fastest plan by trying everything, slowly and without the code under test."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from ipujax.planner import Costs
from lowering import schedules
from lowering.schedules import Schedule, ScheduleError
from tests.lowering.schedules import checker

BUILDERS = {
    build.__name__: build
    for build in (
        schedules.grouped,
        schedules.interleaved,
        schedules.sequential,
        schedules.gpipe,
        schedules.one_f_one_b,
        schedules.eager_one_f_one_b,
        schedules.looped_bfs,
        schedules.interleaved_one_f_one_b,
        schedules.zero_bubble,
        schedules.zbv,
        schedules.dualpipe_v,
        schedules.v_half,
        schedules.v_min,
    )
}

FOLDED = ("zbv", "v_half", "v_min", "dualpipe_v")
"""Those with two stages on an IPU, in a V."""

SHARING = ("interleaved_one_f_one_b", "looped_bfs", *FOLDED)
"""Those with several stages on an IPU."""


@dc.dataclass(frozen=True)
class Tried:
    """What one cut with one schedule takes."""

    schedule: str
    micro_batches: int
    recompute: bool
    offload: bool
    cut: tuple[int, ...]
    seconds: float
    peak_bytes: tuple[float, ...]

    def excess(self, memory: Sequence[float]) -> float:
        return max(peak - limit for peak, limit in zip(self.peak_bytes, memory, strict=False))


def try_everything(
    costs: Costs,
    ipus: int,
    micro_batches: Sequence[int],
    names: Sequence[str],
    recompute: Sequence[bool],
    offload: Sequence[bool],
    replicas: Sequence[int],
) -> Iterator[Tried]:
    for name, total, count in itertools.product(names, micro_batches, replicas):
        if total % count or count > ipus:
            continue
        for schedule in every_schedule(name, ipus // count, total // count, len(costs)):
            if schedule.splits_backward and costs.weight is None:
                continue
            moments = list_moments(schedule)
            for inner in itertools.combinations(range(1, len(costs)), schedule.stages - 1):
                cut = (0, *inner, len(costs))
                for again, stores in itertools.product(recompute, offload):
                    if not stores or costs.host_bytes_per_second:
                        took = take(costs, schedule, cut, moments, again, stores)
                        yield Tried(name, total, again, stores, cut, *took)


def every_schedule(name: str, ipus: int, micro_batches: int, segments: int) -> Iterator[Schedule]:
    several = name in SHARING
    for used in range(2 if several else 1, ipus + 1):
        for each in range(2, segments // used + 1) if several else (1,):
            mapping = [stage % used for stage in range(used * each)]
            if name in FOLDED:
                if each > 2:
                    break
                mapping = [*range(used), *range(used)[::-1]]
            if len(mapping) <= segments:
                try:
                    yield BUILDERS[name](len(mapping), micro_batches, ipus=mapping)
                except ScheduleError:
                    continue


Moment = tuple[int, tuple[int, ...], tuple[bool, ...]]
"""An IPU, how many micro-batches of each of its stages wait, and which of them are at work."""


def list_moments(schedule: Schedule) -> set[Moment]:
    """What is on each IPU while it runs each of its tasks."""
    order = [task for tick in checker.labels(schedule) for task in tick]
    end = "W" if any(letter == "W" for _, letter, _ in order) else "B"
    ran: dict[tuple[int, int], str] = {}
    found: set[Moment] = set()
    for stage, letter, batch in order:
        (ipu,) = schedule.ipus[stage]
        ran[stage, batch] = letter
        here = {pair: last for pair, last in ran.items() if schedule.ipus[pair[0]] == (ipu,)}
        counts = [sum(s == number for s, _ in here) for number in range(schedule.stages)]
        works = [
            (number, "B") in {(s, last) for (s, _), last in here.items()}
            for number in range(schedule.stages)
        ]
        works[stage] = True
        found.add((ipu, tuple(counts), tuple(works)))
        if letter == end:
            del ran[stage, batch]
    return found


def keep(costs: Costs, stage: range) -> float:
    """The bytes that one micro-batch leaves in a stage, with what several segments keep once."""
    twice = [size for a, b, size in costs.shared_bytes if a in stage and b in stage]
    return sum((costs.activation_bytes or ())[i] for i in stage) - sum(twice)


def take(
    costs: Costs,
    schedule: Schedule,
    cut: Sequence[int],
    moments: set[Moment],
    again: bool,
    stores: bool,
) -> tuple[float, tuple[float, ...]]:
    """The seconds of an update, and the bytes of each IPU."""
    cut_bytes, spaces_needed = costs.cut_bytes or (), costs.workspace_bytes or ()
    stages = [range(a, b) for a, b in itertools.pairwise(cut)]

    def add(row: Any, stage: range) -> float:
        return math.fsum(row[i] for i in stage)

    passing = [
        (cut_bytes[at - 1] if at else 0)
        + sum(size for first, last, size in costs.skips if first < at <= last)
        for at in cut[:-1]
    ]
    weight = costs.weight or [0] * len(costs)
    seconds: dict[str, list[float]] = {"F": [], "B": [], "W": []}
    leaves = [
        passing[number] if again else keep(costs, stage) for number, stage in enumerate(stages)
    ]
    moves = [0.0] * len(stages)
    for number, left in enumerate(leaves):  # nothing else waits in some stages
        if stores and max(counts[number] for _, counts, _ in moments) > 1:
            moves[number] = left / costs.host_bytes_per_second
            moments = {
                (i, (*c[:number], int(w[number]), *c[number + 1 :]), w) for i, c, w in moments
            }
    for stage, move in zip(stages, moves, strict=True):
        forward, made = add(costs.forward, stage), add(weight, stage)
        splits = schedule.splits_backward
        seconds["F"].append(forward + move)
        seconds["B"].append(
            add(costs.backward, stage) + (forward if again else 0) + (0 if splits else made) + move
        )
        seconds["W"].append(made)
    delays = [costs.latency + size / costs.bytes_per_second for size in passing[1:]]
    ipus = [group[0] for group in schedule.ipus]
    updates, peaks, spaces = ([0.0] * (max(ipus) + 1) for _ in range(3))
    kept = [keep(costs, stage) * again for stage in stages]
    for ipu, counts, works in moments:
        waits = sum(count * left for count, left in zip(counts, leaves, strict=True))
        peaks[ipu] = max(peaks[ipu], waits + sum(map(operator.mul, works, kept)))
    for first, last, size in costs.tied_bytes:
        here, there = (sum(stage.stop <= i for stage in stages) for i in (first, last))
        if here != there:
            peaks[ipus[there]] += size
        if ipus[here] != ipus[there]:
            updates[ipus[here]] += size / costs.bytes_per_second
            updates[ipus[there]] += size / costs.bytes_per_second
    for ipu, stage in zip(ipus, stages, strict=True):
        updates[ipu] += add(costs.update, stage)
        peaks[ipu] += add(costs.parameter_bytes, stage)
        spaces[ipu] = max(spaces[ipu], *(spaces_needed[i] for i in stage))
    makespan = checker.makespan(schedule, seconds, delays)
    return makespan + max(updates), tuple(map(sum, zip(peaks, spaces, strict=True)))
