"""What is counted all the time: how many IPUs do something, and how much each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ipujax.report.presentation.perfetto.texts import all_microseconds, counter
from ipujax.report.presentation.perfetto.tracks import by_ipu

if TYPE_CHECKING:
    from ipujax.report.report import Report


def busy_ipus(steps: dict[str, np.ndarray], process: int, hertz: float) -> Iterator[str]:
    """How many IPUs do anything, whenever that changes."""
    changes: list[tuple[np.ndarray, int]] = []
    for own in by_ipu(steps, steps["cycles"] > 0).values():
        starts = steps["start_cycle"][own]
        ends = np.maximum.accumulate(starts + steps["cycles"][own])
        pauses = np.flatnonzero(starts[1:] > ends[:-1])
        changes += [(starts[np.r_[0, pauses + 1]], 1), (ends[np.r_[pauses, len(own) - 1]], -1)]
    if not changes:
        return
    times, place = np.unique(np.concatenate([at for at, _ in changes]), return_inverse=True)
    counts = np.zeros(len(times), dtype=np.int64)
    np.add.at(counts, place, np.concatenate([np.full(len(at), by) for at, by in changes]))
    kept = counts != 0
    values = np.cumsum(counts)[kept].tolist()
    for at, value in zip(all_microseconds(times[kept], hertz), values, strict=True):
        yield counter(process, "busy", "IPUs", at, value)


def live_bytes(
    report: Report, steps: dict[str, np.ndarray], live: dict[str, np.ndarray]
) -> Iterator[str]:
    """How much each IPU holds on all its tiles, whenever that changes.

    Args:
      report: whose it is.
      steps: the columns of its steps.
      live: those of `live_trace`, in the same order.
    """
    hertz = float(report.target.clock_hz)
    numbers = np.array([int(name) if name else -1 for name in live["names"].tolist()], np.int64)
    at_step = numbers[live["name"]] if len(numbers) else np.zeros(0, dtype=np.int64)
    for ipu, own in by_ipu(steps, at_step >= 0).items():
        always = int(report.memory.always_live_bytes[ipu])
        held = always + report.liveness[ipu].bytes[at_step[own]]
        changes = np.flatnonzero(np.diff(held, prepend=-1))
        times = all_microseconds(steps["start_cycle"][own][changes], hertz)
        for at, value in zip(times, held[changes].tolist(), strict=True):
            yield counter(ipu + 1, "live", "bytes", at, value)
