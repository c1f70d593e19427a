"""What an IPU waits for when it does nothing: who is the last to finish before it goes on."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ipujax.report.presentation.perfetto.texts import PROGRAM
from ipujax.report.presentation.perfetto.tracks import by_ipu
from lowering import trace

_SYNC, _HOST, _REMOTE = (trace.KINDS.index(kind) for kind in ("sync", "host", "remote"))
_BETWEEN_TICKS = "pipeline transfers"  # what all IPUs of a pipeline do after each tick
_ITSELF = -1

_Ends: TypeAlias = tuple[np.ndarray, np.ndarray]


class Waits:
    """What IPUs wait for.

    Args:
      steps: the columns of `machine.Steps`.
      tracks: on which track of its IPU each is.
    """

    def __init__(self, steps: dict[str, np.ndarray], tracks: np.ndarray) -> None:
        self._steps = steps
        works = steps["kind"] != _SYNC
        aside = (tracks != PROGRAM) & np.isin(steps["kind"], (_HOST, _REMOTE))
        self._others, self._own = _ends(steps, works), _ends(steps, aside)
        self._between = np.char.startswith(steps["names"], _BETWEEN_TICKS)

    def of(self, ipu: int, since: int, until: int, before: int, after: int) -> str:
        """Of an IPU that does nothing from one cycle to another.

        An IPU with no task in a tick of a pipeline is said to be in its bubble, as the schedule has
        nothing for it to do.

        Args:
          ipu: which one.
          since: the cycle in which its last step ended.
          until: the cycle in which its next one starts.
          before: the number of that last step, or `NONE`.
          after: the number of that next one, or `NONE`.
        """
        phases = self._steps["phase"]
        if self._is_between(after) and (before == trace.NONE or phases[before] == trace.NONE):
            return "bubble"
        found = {other: ends for other, ends in self._others.items() if other != ipu}
        found |= {_ITSELF: self._own[ipu]} if ipu in self._own else {}
        ended = [(*_last(ends, until), other) for other, ends in found.items()]
        end, kind, other = max(ended, key=lambda last: last[0], default=(since, _SYNC, _ITSELF))
        if end <= since:
            return "waits"
        if kind == _HOST:
            return "waits for the host"
        return "waits for streaming memory" if kind == _REMOTE else f"waits for IPU {other}"

    def _is_between(self, step: int) -> bool:
        return step != trace.NONE and bool(self._between[self._steps["name"][step]])


def _last(ends: _Ends, until: int) -> tuple[int, int]:
    """When the last step that has ended by then did so, and its kind."""
    i = int(ends[0].searchsorted(until, "right")) - 1
    return (int(ends[0][i]), int(ends[1][i])) if i >= 0 else (trace.NONE, _SYNC)


def _ends(steps: dict[str, np.ndarray], chosen: np.ndarray) -> dict[int, _Ends]:
    """By IPU when some steps end, in order, and their kinds."""
    found: dict[int, _Ends] = {}
    for ipu, own in by_ipu(steps, chosen).items():
        ends = steps["start_cycle"][own] + steps["cycles"][own]
        order = np.argsort(ends, kind="stable")
        found[ipu] = ends[order], steps["kind"][own][order]
    return found
