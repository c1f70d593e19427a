"""What it costs to run a program as several processes: a step of each, and their start.

Each process has a core of its own. Who is measured is started anew for each number, in turn with
its baseline.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.measure import Row

PAIRS = 3
LIMIT_SECONDS = 300


def rows() -> list[Row]:
    """Replicas: a step of two processes against one with as much data, and the start of both."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for number in range(PAIRS):
        order = (2, 1) if number % 2 else (1, 2)
        told = {count: told_by(count, "benchmarks.processes_replicas") for count in order}
        pairs.append((told[2], told[1]))
    ratio, work = (
        statistics.median(two[key] / one[key] for two, one in pairs) for key in ("step", "work")
    )
    sides = zip(*pairs, strict=True)
    both, alone = (1e3 * statistics.median(each["step"] for each in side) for side in sides)
    note = f"{both:.1f} ms / {alone:.1f} ms; work of each processor: {work:.2f}"
    what = "an MLP 1024 wide, a step of 2 processes / 1 of as many examples, one core each"
    start = statistics.median(two["start"] for two, _ in pairs)
    return [
        Row(what, ratio, 1.2, note),
        Row("start of 2 processes to their first step, compilation excluded / 1 s", start, 10),
    ]


def told_by(instances: int, module: str, *arguments: str) -> dict[str, Any]:
    """The numbers that a program's instances print as JSON, each of the slowest instance.

    Args:
      instances: how many processes.
      module: the program, which is given the time and the arguments.
      arguments: of the program.
    """
    launch = [sys.executable, "-m", "ipujax.distribution.launch"]
    program = [sys.executable, "-m", module, repr(time.time()), *arguments]
    command = [*launch, "--num-instances", str(instances), *program]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {key: max(each[key] for each in told) for key in told[0]}
