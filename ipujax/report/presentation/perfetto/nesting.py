"""An IPU's program as slices in slices: call, stage and micro-batch, scopes, operation, step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ipujax.report.presentation.perfetto.texts import (
    PROGRAM,
    all_microseconds,
    begin,
    end,
    text,
    whole,
)
from ipujax.report.presentation.perfetto.waits import Waits
from lowering import trace

if TYPE_CHECKING:
    from ipujax.report.report import Report

_PHASES = {"fwd": "forward", "bwd": "backward", "update": "weight update"}
_NAMED_BY_KIND = {"sync": "sync", "exchange": "exchange"}
_LABELS = ("stage", "micro_batch", "phase", "operation")


class _Level(NamedTuple):
    """A slice around steps: what tells it from others, and its name and more, as JSON."""

    key: tuple[object, ...]
    text: str


_Path: TypeAlias = tuple[_Level, ...]


class Nesting:
    """The programs of all IPUs.

    Args:
      report: whose they are.
      steps: the columns of `machine.Steps`.
      waits: what IPUs wait for.
      until: the cycle up to which all steps are there.
    """

    def __init__(
        self, report: Report, steps: dict[str, np.ndarray], waits: Waits, until: int
    ) -> None:
        self._report, self._steps, self._waits, self._until = report, steps, waits, until
        self._hertz = float(report.target.clock_hz)
        self._leaves = [_leaves(name) for name in steps["names"].tolist()]
        self._paths: dict[tuple[int, ...], _Path] = {}
        self._operations: dict[int, _Path] = {trace.NONE: ()}
        self._call = _Level((), f'"name":{text(report.name or "program")},"cat":"call"')

    def events(self, ipu: int, own: np.ndarray) -> Iterator[str]:
        """The slices of an IPU, each after that which it lies in.

        Args:
          ipu: which one.
          own: the numbers of its steps, in the order of time, none of which overlap.
        """
        starts = self._steps["start_cycle"][own]
        ends = starts + self._steps["cycles"][own]
        labels = np.stack([self._steps[key][own] for key in _LABELS])
        after = np.concatenate([[0], ends])  # when what is before each step has ended
        gaps = starts > after[:-1]
        changes = (np.diff(labels, axis=1, prepend=trace.NONE - 1) != 0).any(axis=0)
        bounds = [*np.flatnonzero(gaps | changes).tolist(), len(own)]
        at, until = (all_microseconds(times, self._hertz) for times in (starts, ends))
        opened: list[_Level] = []
        last = 0.0
        for low, high in itertools.pairwise(bounds):
            path = (self._call, *self._path(labels[:, low]))
            shared = _shared(opened, path)
            yield from self._close(ipu, opened, shared, last)
            for level in path[:1] if not opened else ():
                yield from self._open(ipu, opened, level, 0.0)
            if gaps[low]:
                yield from self._wait(ipu, own, low, int(after[low]), int(starts[low]))
            for level in path[len(opened) :]:
                yield from self._open(ipu, opened, level, at[low])
            yield from self._steps_of(ipu, own, low, high, at, until)
            last = until[high - 1]
        yield from self._finish(ipu, own, opened, int(after[-1]))

    def _finish(self, ipu: int, own: np.ndarray, opened: list[_Level], since: int) -> Iterator[str]:
        """What an IPU waits for in the end, and the end of the call."""
        last, ending = all_microseconds(np.array([since, max(since, self._until)]), self._hertz)
        if not opened:
            yield from self._open(ipu, opened, self._call, 0.0)
        yield from self._close(ipu, opened, 1, last)
        if self._until > since and self._until == self._report.cycles:
            yield from self._wait(ipu, own, len(own), since, self._until)
        yield from self._close(ipu, opened, 0, ending)

    def _open(self, ipu: int, opened: list[_Level], level: _Level, at: float) -> Iterator[str]:
        opened.append(level)
        yield begin(ipu + 1, PROGRAM, at, level.text)

    def _close(self, ipu: int, opened: list[_Level], keep: int, at: float) -> Iterator[str]:
        while len(opened) > keep:
            opened.pop()
            yield end(ipu + 1, PROGRAM, at)

    def _wait(self, ipu: int, own: np.ndarray, place: int, since: int, until: int) -> Iterator[str]:
        """Before the step at a place."""
        before = int(own[place - 1]) if place else trace.NONE
        after = int(own[place]) if place < len(own) else trace.NONE
        for name, *bounds in self._waits.parts(ipu, since, until, before, after):
            at, ending = all_microseconds(np.array(bounds), self._hertz)
            cycles = bounds[1] - bounds[0]
            what = f'"name":"{name}","cat":"waiting","args":{{"cycles":{cycles}}}'
            yield whole(ipu + 1, PROGRAM, at, ending, what)

    def _steps_of(
        self, ipu: int, own: np.ndarray, low: int, high: int, at: list[float], until: list[float]
    ) -> Iterator[str]:
        part = own[low:high]
        names, kinds = self._steps["name"][part].tolist(), self._steps["kind"][part].tolist()
        cycles = self._steps["cycles"][part].tolist()
        for i, name, kind, each in zip(range(low, high), names, kinds, cycles, strict=True):
            what = f'{self._leaves[name][kind]},"args":{{"cycles":{each}}}'
            yield whole(ipu + 1, PROGRAM, at[i], until[i], what)

    def _path(self, labels: np.ndarray) -> _Path:
        """What is around a step, the outermost first."""
        key = tuple(labels.tolist())
        if key not in self._paths:
            *task, place = key
            if place not in self._operations:
                self._operations[place] = self._of_operation(place)
            self._paths[key] = (*_task(*task), *self._operations[place])
        return self._paths[key]

    def _of_operation(self, place: int) -> _Path:
        """The scopes of an operation, and itself."""
        operation = self._report.operations[place]
        scopes = filter(None, operation.scope.split("/"))
        around = [_Level(("scope", s), f'"name":{text(s)},"cat":"scope"') for s in scopes]
        named = operation.label or operation.name
        told = {"operation": operation.name, "line": operation.origin}
        args = text({key: word for key, word in told.items() if word and word != named})
        own = f'"name":{text(named)},"cat":"operation","args":{args}'
        return (*around, _Level(("operation", place), own))


def _task(stage: int, micro_batch: int, phase: int) -> _Path:
    """The task of a pipeline that steps belong to, if they belong to any."""
    if phase == trace.NONE:
        return ()
    words, args = _PHASES[trace.PHASES[phase]], [f'"phase":"{trace.PHASES[phase]}"']
    if stage != trace.NONE:
        words, args = f"stage {stage} {words}", [*args, f'"stage":{stage}']
    if micro_batch != trace.NONE:
        words += f", micro-batch {micro_batch}"
        args.append(f'"micro_batch":{micro_batch}')
    what = f'"name":"{words}","cat":"task","args":{{{",".join(args)}}}'
    return (_Level(("task", stage, micro_batch, phase), what),)


def _leaves(name: str) -> list[str]:
    """What a step of each kind is called within its operation, as `Reduce` for `sum/Reduce`."""
    short = name.rpartition("/")[2]
    return [
        f'"name":{text(_NAMED_BY_KIND.get(kind) or short or kind)},"cat":"{kind}"'
        for kind in trace.KINDS
    ]


def _shared(opened: list[_Level], path: _Path) -> int:
    """How many of the slices that are open are those of a path, too."""
    pairs = zip(opened, path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0].key == pair[1].key, pairs))
