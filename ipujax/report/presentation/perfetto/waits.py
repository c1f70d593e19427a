"""Finds what an idle IPU waits for: the IPU or transfer that finishes last before it goes on."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from ipujax.report.presentation.perfetto.event_text import PROGRAM
from ipujax.report.presentation.perfetto.tracks import group_steps_by_ipu
from lowering import trace

_SYNC, _HOST, _REMOTE = (trace.KINDS.index(kind) for kind in ("sync", "host", "remote"))
_TRANSFERS = {_HOST: "the host", _REMOTE: "streaming memory"}
_BETWEEN_TICKS = "pipeline transfers"  # the step of all IPUs of a pipeline after each tick

_Part: TypeAlias = tuple[str, int, int]
"""What is waited for, from one cycle to another."""


class Waits:
    """The causes for which IPUs wait.

    Args:
      steps: the columns of `machine.Steps`.
      tracks: the track of each step.
    """

    def __init__(self, steps: dict[str, np.ndarray], tracks: np.ndarray) -> None:
        self._steps = steps
        kinds = steps["kind"]
        self._work = _spans_by_ipu(steps, kinds != _SYNC)
        self._transfers = {kind: _spans_by_ipu(steps, kinds == kind) for kind in _TRANSFERS}
        aside = tracks != PROGRAM
        self._aside = {kind: _spans_by_ipu(steps, aside & (kinds == kind)) for kind in _TRANSFERS}
        self._tasks = np.sort(steps["start_cycle"][steps["phase"] != trace.NONE])
        self._between = np.char.startswith(steps["names"], _BETWEEN_TICKS)

    def split_waiting(
        self, ipu: int, since: int, until: int, previous_step: int, next_step: int
    ) -> list[_Part]:
        """Splits the time that an IPU does nothing into its causes, one after the other.

        An IPU with no task in a tick of a pipeline is in its bubble from the first task of that
        tick on, as the schedule has nothing for it to do. If the IPU that is waited for mostly
        moves data, the cause is that transfer.

        Args:
          ipu: the number of the IPU.
          since: the cycle in which its last step ended.
          until: the cycle in which its next one starts.
          previous_step: the number of that last step, or `NONE`.
          next_step: the number of that next one, or `NONE`.
        """
        phases = self._steps["phase"]
        if not self._is_between_ticks(next_step) or (
            previous_step != trace.NONE and phases[previous_step] != trace.NONE
        ):
            return [(self._name_cause_of_waiting(ipu, since, until), since, until)]
        first_task = self._tasks[self._tasks.searchsorted(since) :][:1].tolist()
        tick_start = first_task[0] if first_task and first_task[0] < until else until
        parts = [("bubble", tick_start, until)] if tick_start < until else []
        return (
            [(self._name_cause_of_waiting(ipu, since, tick_start), since, tick_start), *parts]
            if tick_start > since
            else parts
        )

    def _name_cause_of_waiting(self, ipu: int, since: int, until: int) -> str:
        """Names the IPU or transfer that is the last to finish."""
        own_transfers = [
            (_last_end_before(spans_of_ipu.get(ipu), until), kind)
            for kind, spans_of_ipu in self._aside.items()
        ]
        ended, kind = max(own_transfers)
        last_ends = (
            (_last_end_before(spans, until), -i) for i, spans in self._work.items() if i != ipu
        )
        last_end, negated_ipu = max(last_ends, default=(since, 0))
        if max(last_end, ended) <= since:
            return "waits"
        if ended >= last_end:
            return f"waits for {_TRANSFERS[kind]}"
        for kind, each in self._transfers.items():
            if 2 * _count_span_cycles(each.get(-negated_ipu), since, until) > until - since:
                return f"waits for {_TRANSFERS[kind]}"
        return f"waits for IPU {-negated_ipu}"

    def _is_between_ticks(self, step: int) -> bool:
        return step != trace.NONE and bool(self._between[self._steps["name"][step]])


class _Spans(NamedTuple):
    """The ends and summed cycles of some steps of an IPU, in the order of their ends.

    Attributes:
      ends: int64 [steps], the cycle in which each ends.
      done: int64 [steps], the cycles of the steps up to each, summed.
    """

    ends: np.ndarray
    done: np.ndarray


def _last_end_before(spans: _Spans | None, until: int) -> int:
    """Returns the cycle at which the last of the steps that have ended by `until` did so."""
    count = 0 if spans is None else int(spans.ends.searchsorted(until, "right"))
    return int(spans.ends[count - 1]) if spans is not None and count else trace.NONE


def _count_span_cycles(spans: _Spans | None, since: int, until: int) -> int:
    """Returns the cycles after `since` of the steps that end after it and by `until`."""
    if spans is None:
        return 0
    first_index, stop_index = spans.ends.searchsorted([since, until], "right").tolist()
    if first_index == stop_index:
        return 0
    cycles_before = int(spans.done[first_index - 1]) if first_index else 0
    first_start = (
        int(spans.ends[first_index] - spans.done[first_index]) + cycles_before
    )  # of the first of them
    return int(spans.done[stop_index - 1]) - cycles_before - max(0, since - first_start)


def _spans_by_ipu(steps: dict[str, np.ndarray], is_included: np.ndarray) -> dict[int, _Spans]:
    """Returns some steps as spans, by IPU."""
    spans: dict[int, _Spans] = {}
    for ipu, step_numbers in group_steps_by_ipu(steps, is_included).items():
        cycles = steps["cycles"][step_numbers]
        ends = steps["start_cycle"][step_numbers] + cycles
        order = np.argsort(ends, kind="stable")
        spans[ipu] = _Spans(ends[order], np.cumsum(cycles[order]))
    return spans
