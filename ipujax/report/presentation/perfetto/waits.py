"""What an IPU waits for when it does nothing: who is the last to finish before it goes on."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from ipujax.report.presentation.perfetto.texts import PROGRAM
from ipujax.report.presentation.perfetto.tracks import by_ipu
from lowering import trace

_SYNC, _HOST, _REMOTE = (trace.KINDS.index(kind) for kind in ("sync", "host", "remote"))
_TRANSFERS = {_HOST: "the host", _REMOTE: "streaming memory"}
_BETWEEN_TICKS = "pipeline transfers"  # what all IPUs of a pipeline do after each tick

_Part: TypeAlias = tuple[str, int, int]
"""What is waited for, from one cycle to another."""


class Waits:
    """What IPUs wait for.

    Args:
      steps: the columns of `machine.Steps`.
      tracks: on which track of its IPU each is.
    """

    def __init__(self, steps: dict[str, np.ndarray], tracks: np.ndarray) -> None:
        self._steps = steps
        kinds = steps["kind"]
        self._work = _spans(steps, kinds != _SYNC)
        self._transfers = {kind: _spans(steps, kinds == kind) for kind in _TRANSFERS}
        aside = tracks != PROGRAM
        self._aside = {kind: _spans(steps, aside & (kinds == kind)) for kind in _TRANSFERS}
        self._tasks = np.sort(steps["start_cycle"][steps["phase"] != trace.NONE])
        self._between = np.char.startswith(steps["names"], _BETWEEN_TICKS)

    def parts(self, ipu: int, since: int, until: int, before: int, after: int) -> list[_Part]:
        """What an IPU that does nothing from one cycle to another waits for, one after the other.

        An IPU with no task in a tick of a pipeline is in its bubble from the first task of that
        tick on, as the schedule has nothing for it to do. Where what is waited for moves data most
        of the time, that is told.

        Args:
          ipu: which one.
          since: the cycle in which its last step ended.
          until: the cycle in which its next one starts.
          before: the number of that last step, or `NONE`.
          after: the number of that next one, or `NONE`.
        """
        phases = self._steps["phase"]
        if not self._is_between(after) or (before != trace.NONE and phases[before] != trace.NONE):
            return [(self._name(ipu, since, until), since, until)]
        first = self._tasks[self._tasks.searchsorted(since) :][:1].tolist()
        tick = first[0] if first and first[0] < until else until
        parts = [("bubble", tick, until)] if tick < until else []
        return [(self._name(ipu, since, tick), since, tick), *parts] if tick > since else parts

    def _name(self, ipu: int, since: int, until: int) -> str:
        """Who is the last to finish."""
        own = [(_last(each.get(ipu), until), kind) for kind, each in self._aside.items()]
        ended, kind = max(own)
        others = ((_last(spans, until), -i) for i, spans in self._work.items() if i != ipu)
        last, other = max(others, default=(since, 0))
        if max(last, ended) <= since:
            return "waits"
        if ended >= last:
            return f"waits for {_TRANSFERS[kind]}"
        for kind, each in self._transfers.items():
            if 2 * _within(each.get(-other), since, until) > until - since:
                return f"waits for {_TRANSFERS[kind]}"
        return f"waits for IPU {-other}"

    def _is_between(self, step: int) -> bool:
        return step != trace.NONE and bool(self._between[self._steps["name"][step]])


class _Spans(NamedTuple):
    """Some steps of an IPU, in the order of their ends.

    Attributes:
      ends: int64 [steps], when each ends.
      done: int64 [steps], how many cycles those up to each take.
    """

    ends: np.ndarray
    done: np.ndarray


def _last(spans: _Spans | None, until: int) -> int:
    """When the last of them that has ended by then did so."""
    i = 0 if spans is None else int(spans.ends.searchsorted(until, "right"))
    return int(spans.ends[i - 1]) if spans is not None and i else trace.NONE


def _within(spans: _Spans | None, since: int, until: int) -> int:
    """Of those that end after one cycle and not after another, the cycles after the first."""
    if spans is None:
        return 0
    low, high = spans.ends.searchsorted([since, until], "right").tolist()
    if low == high:
        return 0
    earlier = int(spans.done[low - 1]) if low else 0
    start = int(spans.ends[low] - spans.done[low]) + earlier  # of the first of them
    return int(spans.done[high - 1]) - earlier - max(0, since - start)


def _spans(steps: dict[str, np.ndarray], chosen: np.ndarray) -> dict[int, _Spans]:
    """Some steps, by IPU."""
    found: dict[int, _Spans] = {}
    for ipu, own in by_ipu(steps, chosen).items():
        cycles = steps["cycles"][own]
        ends = steps["start_cycle"][own] + cycles
        order = np.argsort(ends, kind="stable")
        found[ipu] = _Spans(ends[order], np.cumsum(cycles[order]))
    return found
