"""What modelling costs, from a traced jaxpr to the report: seconds, memory, and how they grow.

Each model is lowered and modelled in a process of its own, so that peaks of memory are its own and
no cache is warm. Tracing is not counted; memory is all of the process, JAX and tracing included.
"""

from __future__ import annotations

import dataclasses as dc
import json
import resource
import statistics
import subprocess
import sys
import time

import jax
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row
from lowering import Options, lower
from lowering.jaxprs import jaxpr
from lowering.machine import ModelOptions, model
from validation.models import training

STEPS = {
    "resnext": training.resnext101,
    "resnet50": training.resnet50,
    "bert": training.bert_large,
    "many": training.many,
}
# name, arguments, what it is, seconds and GiB that it may take
REACH: tuple[tuple[str, list[int], str, float, float], ...] = (
    ("resnext", [4], "ResNeXt-101 step, batch 4", 10, 4),
    ("resnet50", [4], "ResNet-50 step, batch 4, over 2 IPUs", 10, 4),
    ("bert", [24], "BERT-Large step, 24 layers over 4 IPUs", 10, 4),
    ("many", [64, 1024], "pipeline of 64 IPUs x 1 024 micro-batches", 5, 1),
)
LAYERS = (6, 12, 24, 48)  # of BERT
REPEATS = 3


def rows() -> list[Row]:
    """Ratios are of seconds and GiB to what each may take; growth is of time per equation."""
    found: list[Row] = []
    for name, arguments, what, seconds, gibibytes in REACH:
        runs = [measure(name, *arguments) for _ in range(REPEATS)]
        took = statistics.median(run["seconds"] for run in runs)
        memory = max(run["gibibytes"] for run in runs)
        note = f"{took:.2f} s / {seconds:g} s, {runs[0]['equations']:.0f} equations"
        found.append(Row(f"modelling a {what}", took / seconds, 1.0, note))
        note = f"{memory:.2f} GiB / {gibibytes:g} GiB"
        found.append(Row("  its memory", memory / gibibytes, 1.0, note))
    return [*found, _growth(), *_reporting()]


def _reporting() -> list[Row]:
    """Processor time of a report of BERT-Large, from the function on, and for two other chips."""
    runs = [(measure("jit"), measure("report")) for _ in range(REPEATS)]
    ratio = statistics.median(ours["first"] / jit["first"] for jit, ours in runs)
    first = statistics.median(ours["first"] for _, ours in runs)
    clock, tiles = (statistics.median(ours[key] for _, ours in runs) for key in ("clock", "tiles"))
    what = "BERT-Large over 4 IPUs"
    return [
        Row(
            f"tracing, lowering and reporting {what} / `jit(...).lower`",
            ratio,
            1.5,
            f"{first:.1f} s",
        ),
        Row("  a report for another clock / 1 s", clock, 1.0, f"{clock:.1f} s"),
        Row("  a report for more tiles / 1 s", tiles, 1.0, f"{tiles:.1f} s"),
    ]


def _run_jit() -> dict[str, float]:
    step = training.bert_large()
    start = time.process_time()
    jax.jit(step.function).lower(*step.args)
    return {"first": time.process_time() - start}


def _run_report() -> dict[str, float]:
    step, config = training.bert_large(), ipu.config.IPUConfig()
    config.auto_select_ipus, config.allow_recompute = step.num_ipus, True
    config.configure_ipu_system()
    times = [time.process_time()]
    lowered = ipu.compile(step.function).lower(*step.args)
    chip = ipu.targets.IPU2
    others = [dc.replace(chip, clock_hz=1e9), dc.replace(chip, tiles_per_ipu=1500)]
    for each in (chip, *others):
        lowered.report(each)
        times.append(time.process_time())
    return dict(zip(("first", "clock", "tiles"), np.diff(times).tolist(), strict=True))


def measure(name: str, *arguments: int) -> dict[str, float]:
    """Seconds, GiB and equations of one model, or seconds of a side, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.modelling_time", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _growth() -> Row:
    runs = [measure("bert", layers) for layers in LAYERS]
    each = [run["seconds"] / run["equations"] for run in runs]
    note = ", ".join(
        f"{layers}: {run['seconds']:.1f} s of {run['equations']:.0f}"
        for layers, run in zip(LAYERS, runs, strict=True)
    )
    title = f"time per equation, BERT of {LAYERS[-1]} / {LAYERS[0]} layers"
    return Row(title, each[-1] / each[0], 1.5, note)


def _run(name: str, arguments: list[int]) -> dict[str, float]:
    step = STEPS[name](*arguments)
    closed = jax.jit(step.function).trace(*step.args).jaxpr
    start = time.perf_counter()
    program = lower(closed, Options(num_ipus=step.num_ipus, allow_recompute=True))
    middle = time.perf_counter()
    profile = model(program, ModelOptions())
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": end - start,
        "lowering": middle - start,
        "gibibytes": peak / 2**20,
        "equations": _equations(closed.jaxpr),
        "cycles": profile.cycles,
    }


def _equations(root: jaxpr.Jaxpr) -> int:
    inner = (sub for eqn in root.eqns for sub in jaxpr.sub_jaxprs(eqn))
    return len(root.eqns) + sum(map(_equations, inner))


if __name__ == "__main__":
    sides = {"jit": _run_jit, "report": _run_report}
    name, *arguments = sys.argv[1:]
    print(json.dumps(sides[name]() if name in sides else _run(name, [*map(int, arguments)])))
