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
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import Row, seconds
from benchmarks.pipeline_models import MODELS
from benchmarks.pipeline_torch import MISSING, TorchSteps, available

PAIRS = 3
TORCH_REACH = {"mlp_large": 0.9, "transformer": 0.95}
TORCH_STEPS = 9
LIMIT_SECONDS = 300


def rows() -> list[Row]:
    """Replicas in two processes, and stages; the start of both."""
    rows = replica_rows()
    for name in TORCH_REACH:
        rows += stage_rows(name)
    return rows


def stage_rows(name: str) -> list[Row]:
    """A pipeline of four stages in two processes, against torch's and against one process.

    All have the same two cores: two processes have one each.
    """
    taken: dict[str, list[float]] = {"two": [], "one": [], "torch": []}
    for _ in range(PAIRS):
        taken["one"].append(_stages(1, name))
        taken["two"].append(_stages(2, name))
        if available():
            taken["torch"].append(_torch_step(name))
    what = f"{name}, a step of four stages in 2 processes"
    rows = [_ratio(f"{what} / in 1", taken["two"], taken["one"], 1.15)]
    if taken["torch"]:
        title = f"{what} / torch.distributed.pipelining"
        rows.append(_ratio(title, taken["two"], taken["torch"], TORCH_REACH[name]))
    else:
        print(MISSING, file=sys.stderr)
    return rows


def _stages(instances: int, name: str) -> float:
    module = "benchmarks.processes_pipeline"
    return told_by(instances, module, name, options=("--spread", "ipus"))["step"]


def _torch_step(name: str) -> float:
    step = TorchSteps(MODELS[name]())
    step()
    taken = [seconds(step) for _ in range(TORCH_STEPS)]
    step.close()
    return statistics.median(taken)


def _ratio(what: str, mine: list[float], theirs: list[float], reach: float) -> Row:
    ratio = statistics.median(m / t for m, t in zip(mine, theirs, strict=True))
    both = (1e3 * statistics.median(each) for each in (mine, theirs))
    return Row(what, ratio, reach, "{:.0f} ms / {:.0f} ms".format(*both))


def replica_rows() -> list[Row]:
    """A step of two processes against one with as much data, and the start of both."""
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
        Row(what, ratio, 1.1, note),
        Row("start of 2 processes to their first step, compilation excluded / 1 s", start, 10),
    ]


def told_by(
    instances: int, module: str, *arguments: str, options: Sequence[str] = ()
) -> dict[str, Any]:
    """The numbers that a program's instances print as JSON, each of the slowest instance.

    Args:
      instances: how many processes.
      module: the program, which is given the time and the arguments.
      arguments: of the program.
      options: of the launcher.
    """
    launch = [sys.executable, "-m", "ipujax.distribution.launch"]
    program = [sys.executable, "-m", module, repr(time.time()), *arguments]
    command = [*launch, *options, "--num-instances", str(instances), *program]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {key: max(each[key] for each in told) for key in told[0]}
