"""Draws an IPU's program as nested slices: call, stage and micro-batch, scopes, operation, step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ipujax.report.presentation.perfetto.event_text import (
    PROGRAM,
    complete_slice_event,
    convert_all_to_microseconds,
    slice_begin_event,
    slice_end_event,
    to_compact_json,
)
from ipujax.report.presentation.perfetto.waits import Waits
from lowering import trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

_PHASES = {"fwd": "forward", "bwd": "backward", "update": "weight update"}
_NAMED_BY_KIND = {"sync": "sync", "exchange": "exchange"}
_LABELS = ("stage", "micro_batch", "phase", "operation")


class _Level(NamedTuple):
    """A slice around steps: a key that tells it from others, and its JSON fields."""

    key: tuple[object, ...]
    text: str


_Path: TypeAlias = tuple[_Level, ...]


class Nesting:
    """The nested slices of the programs of all IPUs.

    Args:
      report: the report.
      steps: the columns of `machine.Steps`.
      waits: the causes of waiting.
      until: the cycle up to which all steps are there.
    """

    def __init__(
        self, report: Report, steps: dict[str, np.ndarray], waits: Waits, until: int
    ) -> None:
        self._report, self._steps, self._waits, self._until = report, steps, waits, until
        self._hertz = float(report.target.clock_hz)
        self._leaves = [_step_fields_by_kind(name) for name in steps["names"].tolist()]
        self._paths: dict[tuple[int, ...], _Path] = {}
        self._operations: dict[int, _Path] = {trace.NONE: ()}
        self._call = _Level((), f'"name":{to_compact_json(report.name or "program")},"cat":"call"')

    def list_slices_of_ipu(self, ipu: int, step_numbers: np.ndarray) -> Iterator[str]:
        """Yields the slices of an IPU, each after the one that contains it.

        Args:
          ipu: the number of the IPU.
          step_numbers: its steps, in the order of time, none of which overlap.
        """
        starts = self._steps["start_cycle"][step_numbers]
        ends = starts + self._steps["cycles"][step_numbers]
        labels = np.stack([self._steps[key][step_numbers] for key in _LABELS])
        previous_ends = np.concatenate([[0], ends])  # the end of the step before each step
        gaps = starts > previous_ends[:-1]
        changes = (np.diff(labels, axis=1, prepend=trace.NONE - 1) != 0).any(axis=0)
        bounds = [*np.flatnonzero(gaps | changes).tolist(), len(step_numbers)]
        start_times, end_times = (
            convert_all_to_microseconds(times, self._hertz) for times in (starts, ends)
        )
        open_levels: list[_Level] = []
        last_end = 0.0
        for start, stop in itertools.pairwise(bounds):
            path = (self._call, *self._slices_around_step(labels[:, start]))
            num_shared = _count_shared_levels(open_levels, path)
            yield from self._close_slices(ipu, open_levels, num_shared, last_end)
            for level in path[:1] if not open_levels else ():
                yield from self._open_slice(ipu, open_levels, level, 0.0)
            if gaps[start]:
                yield from self._draw_waiting(
                    ipu, step_numbers, start, int(previous_ends[start]), int(starts[start])
                )
            for level in path[len(open_levels) :]:
                yield from self._open_slice(ipu, open_levels, level, start_times[start])
            yield from self._draw_steps(ipu, step_numbers, start, stop, start_times, end_times)
            last_end = end_times[stop - 1]
        yield from self._end_call_slices(ipu, step_numbers, open_levels, int(previous_ends[-1]))

    def _end_call_slices(
        self, ipu: int, step_numbers: np.ndarray, open_levels: list[_Level], since: int
    ) -> Iterator[str]:
        """Yields the waiting at the end of the call, and the end of the call."""
        last, ending = convert_all_to_microseconds(
            np.array([since, max(since, self._until)]), self._hertz
        )
        if not open_levels:
            yield from self._open_slice(ipu, open_levels, self._call, 0.0)
        yield from self._close_slices(ipu, open_levels, 1, last)
        if self._until > since and self._until == self._report.cycles:
            yield from self._draw_waiting(ipu, step_numbers, len(step_numbers), since, self._until)
        yield from self._close_slices(ipu, open_levels, 0, ending)

    def _open_slice(
        self, ipu: int, open_levels: list[_Level], level: _Level, start_time: float
    ) -> Iterator[str]:
        open_levels.append(level)
        yield slice_begin_event(ipu + 1, PROGRAM, start_time, level.text)

    def _close_slices(
        self, ipu: int, open_levels: list[_Level], num_kept: int, end_time: float
    ) -> Iterator[str]:
        while len(open_levels) > num_kept:
            open_levels.pop()
            yield slice_end_event(ipu + 1, PROGRAM, end_time)

    def _draw_waiting(
        self, ipu: int, step_numbers: np.ndarray, position: int, since: int, until: int
    ) -> Iterator[str]:
        """Yields the slices of waiting before the step at a position."""
        previous_step = int(step_numbers[position - 1]) if position else trace.NONE
        next_step = int(step_numbers[position]) if position < len(step_numbers) else trace.NONE
        for name, *bounds in self._waits.split_waiting(ipu, since, until, previous_step, next_step):
            start_time, end_time = convert_all_to_microseconds(np.array(bounds), self._hertz)
            cycles = bounds[1] - bounds[0]
            fields = f'"name":"{name}","cat":"waiting","args":{{"cycles":{cycles}}}'
            yield complete_slice_event(ipu + 1, PROGRAM, start_time, end_time, fields)

    def _draw_steps(
        self,
        ipu: int,
        step_numbers: np.ndarray,
        start: int,
        stop: int,
        start_times: list[float],
        end_times: list[float],
    ) -> Iterator[str]:
        drawn_steps = step_numbers[start:stop]
        names, kinds = (
            self._steps["name"][drawn_steps].tolist(),
            self._steps["kind"][drawn_steps].tolist(),
        )
        cycles = self._steps["cycles"][drawn_steps].tolist()
        for i, name, kind, step_cycles in zip(
            range(start, stop), names, kinds, cycles, strict=True
        ):
            fields = f'{self._leaves[name][kind]},"args":{{"cycles":{step_cycles}}}'
            yield complete_slice_event(ipu + 1, PROGRAM, start_times[i], end_times[i], fields)

    def _slices_around_step(self, labels: np.ndarray) -> _Path:
        """Returns the slices around a step, the outermost first."""
        key = tuple(labels.tolist())
        if key not in self._paths:
            *task_labels, operation_number = key
            if operation_number not in self._operations:
                self._operations[operation_number] = self._slices_of_operation(operation_number)
            self._paths[key] = (*_slice_of_task(*task_labels), *self._operations[operation_number])
        return self._paths[key]

    def _slices_of_operation(self, operation_number: int) -> _Path:
        """Returns the slices of an operation's scopes, and its own."""
        operation = self._report.operations[operation_number]
        scopes = filter(None, operation.scope.split("/"))
        scope_levels = [
            _Level(("scope", s), f'"name":{to_compact_json(s)},"cat":"scope"') for s in scopes
        ]
        title = operation.label or operation.name
        details = {"operation": operation.name, "line": operation.origin}
        shown = {key: value for key, value in details.items() if value and value != title}
        args = to_compact_json({**shown, **self._describe_tiles(operation.number)})
        fields = f'"name":{to_compact_json(title)},"cat":"operation","args":{args}'
        return (*scope_levels, _Level(("operation", operation_number), fields))

    def _describe_tiles(self, number: int) -> dict[str, int]:
        """Returns what an operation that the user has laid out on tiles does there, in one run."""
        work = (self._report.profile.tile_work or {}).get(number)
        if work is None or work.step is None:
            return {}
        step = work.step
        cycles = step.tile_cycles.array[step.vertices.array > 0]
        found = {
            "vertices": int(step.vertices.array.sum()),
            "tiles": cycles.size,
            "cycles of the busiest tile": int(cycles.max(initial=0)),
            "mean cycles of its tiles": round(float(cycles.mean())) if cycles.size else 0,
            "bytes received": int(step.received.array.sum() + step.results_received.array.sum()),
        }
        return {key: value for key, value in found.items() if value}


def _slice_of_task(stage: int, micro_batch: int, phase: int) -> _Path:
    """Returns the slice of the pipeline task that steps belong to; () if they belong to none."""
    if phase == trace.NONE:
        return ()
    words, args = _PHASES[trace.PHASES[phase]], [f'"phase":"{trace.PHASES[phase]}"']
    if stage != trace.NONE:
        words, args = f"stage {stage} {words}", [*args, f'"stage":{stage}']
    if micro_batch != trace.NONE:
        words += f", micro-batch {micro_batch}"
        args.append(f'"micro_batch":{micro_batch}')
    fields = f'"name":"{words}","cat":"task","args":{{{",".join(args)}}}'
    return (_Level(("task", stage, micro_batch, phase), fields),)


def _step_fields_by_kind(name: str) -> list[str]:
    """Returns a step's fields within its operation by kind, as `Reduce` for `sum/Reduce`."""
    short = name.rpartition("/")[2]
    return [
        f'"name":{to_compact_json(_NAMED_BY_KIND.get(kind) or short or kind)},"cat":"{kind}"'
        for kind in trace.KINDS
    ]


def _count_shared_levels(open_levels: list[_Level], path: _Path) -> int:
    """Counts the open slices that also begin a path."""
    pairs = zip(open_levels, path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0].key == pair[1].key, pairs))
