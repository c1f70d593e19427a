"""How the benchmarks measure: two things in turn, many times, and the median of the ratios.

Machines are noisy and change their speed. Pairs that run right after one another see the same
machine; the median forgets the pairs that something else disturbed.
"""

from __future__ import annotations

import dataclasses as dc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


@dc.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      what: what was measured, against which baseline.
      ratio: median over the pairs.
      reach: what the ratio should not exceed.
      note: absolute figures of this run, for orientation.
    """

    what: str
    ratio: float
    reach: float
    note: str = ""


def seconds(function: Callable[[], Any], times: int = 1) -> float:
    """Seconds of one call, averaged over `times` calls in a row."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) / times


def paired(
    ours: Callable[[], Any], baseline: Callable[[], Any], *, pairs: int, times: int = 1
) -> tuple[float, float, float]:
    """Median ratio ours / baseline over `pairs` pairs, and both medians in seconds.

    Who goes first alternates, so that neither side always finds the caches warm.
    """
    ours()
    baseline()
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(pairs):
        first, second = (ours, baseline) if number % 2 else (baseline, ours)
        one, two = seconds(first, times), seconds(second, times)
        mine.append(one if number % 2 else two)
        theirs.append(two if number % 2 else one)
    ratio = statistics.median(m / t for m, t in zip(mine, theirs, strict=True))
    return ratio, statistics.median(mine), statistics.median(theirs)


def row(
    what: str,
    reach: float,
    ours: Callable[[], Any],
    baseline: Callable[[], Any],
    *,
    pairs: int,
    times: int = 1,
) -> Row:
    """Measures one line of the table."""
    ratio, mine, theirs = paired(ours, baseline, pairs=pairs, times=times)
    return Row(what, ratio, reach, f"{_human(mine)} / {_human(theirs)}")


def rows_of_process(module: str, *, devices: int) -> list[Row]:
    """What a module prints in a process of its own: JAX counts its devices, here CPUs, once."""
    flag = f"--xla_force_host_platform_device_count={devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return [Row(**fields) for fields in json.loads(done.stdout)]


def print_rows(rows: list[Row]) -> None:
    """Prints rows for `rows_of_process`."""
    print(json.dumps([dc.asdict(row) for row in rows]))


def table(rows: list[Row]) -> str:
    """The rows as text, with what each should reach."""
    width = max(len(r.what) for r in rows)
    lines = [f"{'what':{width}}  ratio  reach  ours / baseline"]
    for r in rows:
        mark = " " if r.ratio <= r.reach else "!"
        lines.append(f"{r.what:{width}}  {r.ratio:5.2f} <= {r.reach:4.2f}{mark} {r.note}")
    return "\n".join(lines)


def _human(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
