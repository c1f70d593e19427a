"""Counter events over time: how many IPUs work, and how many bytes each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ipujax.report.presentation.perfetto.event_text import (
    convert_all_to_microseconds,
    counter_event,
)
from ipujax.report.presentation.perfetto.tracks import group_steps_by_ipu

if TYPE_CHECKING:
    from ipujax.report.report import Report


def count_busy_ipus(steps: dict[str, np.ndarray], process: int, hertz: float) -> Iterator[str]:
    """Yields counter events of how many IPUs work, whenever that changes."""
    changes: list[tuple[np.ndarray, int]] = []
    for step_numbers in group_steps_by_ipu(steps, steps["cycles"] > 0).values():
        starts = steps["start_cycle"][step_numbers]
        ends = np.maximum.accumulate(starts + steps["cycles"][step_numbers])
        pauses = np.flatnonzero(starts[1:] > ends[:-1])
        changes += [
            (starts[np.r_[0, pauses + 1]], 1),
            (ends[np.r_[pauses, len(step_numbers) - 1]], -1),
        ]
    if not changes:
        return
    times, time_index = np.unique(
        np.concatenate([event_times for event_times, _ in changes]), return_inverse=True
    )
    counts = np.zeros(len(times), dtype=np.int64)
    np.add.at(
        counts,
        time_index,
        np.concatenate([np.full(len(at), increment) for at, increment in changes]),
    )
    has_change = counts != 0
    values = np.cumsum(counts)[has_change].tolist()
    for at, value in zip(
        convert_all_to_microseconds(times[has_change], hertz), values, strict=True
    ):
        yield counter_event(process, "busy", "IPUs", at, value)


def count_live_bytes(
    report: Report, steps: dict[str, np.ndarray], live: dict[str, np.ndarray]
) -> Iterator[str]:
    """Yields counter events of how much each IPU holds, whenever that changes.

    Args:
      report: the report.
      steps: the columns of its steps.
      live: the columns of `rename_steps_by_liveness`, in the same order.
    """
    hertz = float(report.target.clock_hz)
    numbers = np.array([int(name) if name else -1 for name in live["names"].tolist()], np.int64)
    at_step = numbers[live["name"]] if len(numbers) else np.zeros(0, dtype=np.int64)
    for ipu, step_numbers in group_steps_by_ipu(steps, at_step >= 0).items():
        always_live = int(report.memory.always_live_bytes[ipu])
        live_bytes = always_live + report.liveness[ipu].bytes[at_step[step_numbers]]
        changes = np.flatnonzero(np.diff(live_bytes, prepend=-1))
        times = convert_all_to_microseconds(steps["start_cycle"][step_numbers][changes], hertz)
        for microsecond, value in zip(times, live_bytes[changes].tolist(), strict=True):
            yield counter_event(ipu + 1, "live", "bytes", microsecond, value)
