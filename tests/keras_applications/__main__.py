"""`python -m tests.keras_applications [NAMES]`: trains architectures both ways, prints a table.

Each is in a process of its own, and its result a line of JSON in a file; what is there already is
not run again. The exit status is 1 if a result is not Keras's own.
"""

from __future__ import annotations

import os

from tests.quick_xla import FLAGS, KERNELS

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", FLAGS)
# Weights are made by many small kernels, mostly the same ones.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KERNELS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import argparse
import dataclasses as dc
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from tests.keras_applications.compare import Result, architectures, build, compare

_HEADER = """\
| architecture | IPUs | parameters | layers | loss | weights | same bits | Keras, s | ours, s |
|---|---|---|---|---|---|---|---|---|"""
_WRITES = "jax_persistent_cache_min_compile_time_secs"

Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Runs what is asked for, and prints it."""
    options = _options(arguments)
    if options.alone:
        print(json.dumps(dc.asdict(_timed(*options.names, options.ipus))))
        return 0
    path = Path(options.results)
    known = {row["name"]: row for row in _read(path) if row["ipus"] == options.ipus}
    path.parent.mkdir(parents=True, exist_ok=True)
    print(_HEADER)
    good = True
    for name in options.names or architectures():
        row = known.get(name)
        if row is None or "error" in row:
            row = _alone(name, options.ipus, options.limit)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
        good &= "error" not in row and Result(**row).agrees
    return 0 if good else 1


def _alone(name: str, ipus: int, limit: float) -> Row:
    """The result of an architecture, or an error, from a process of its own."""
    command = [sys.executable, "-m", "tests.keras_applications", "--alone"]
    command += ["--ipus", str(ipus), name]
    failed = {"name": name, "ipus": ipus}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return failed | {"error": f"more than {limit:.0f} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return failed | {"error": said[-1] if said else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _timed(name: str, ipus: int) -> Result:
    """The result of an architecture, whose steps no cache of XLA's has."""
    jax.config.update(_WRITES, 0)
    model = build(name, ipus)
    jax.config.update(_WRITES, math.inf)
    return compare(name, model, ipus)


def _read(path: Path) -> list[Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _line(row: Row) -> str:
    """A row of the table."""
    if "error" in row:
        return f"| {row['name']} | {row['ipus']} | {row['error']} |"
    result = Result(**row)
    cells = (
        result.name,
        result.ipus,
        f"{result.parameters / 1e6:.1f} M",
        result.layers,
        f"{result.loss:.1g}",
        f"{result.weights:.1g}",
        "yes" if result.same_bits else "no",
        f"{result.keras_seconds:.1f}",
        f"{result.ipu_seconds:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.keras_applications", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; all without")
    parser.add_argument("--ipus", type=int, default=1, choices=(1, 2), help="2: pipelines")
    parser.add_argument("--results", default="build/keras_applications.jsonl", help="the file")
    parser.add_argument("--limit", type=float, default=1500.0, help="seconds for one architecture")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*architectures()}:
        parser.error(f"Keras has no {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
