"""`python -m tests.torch_operators [NAMES]`: PyTorch's operators, compared; prints a summary.

Each result is a line of JSON in a file, and what is there already is not run again, unless it is
named. The exit status is 1 if a result is not PyTorch's own.
"""

from __future__ import annotations

import os

from tests.quick_xla import FLAGS, KERNELS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KERNELS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import argparse
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.torch_operators.samples import DTYPES, SUBJECTS, operators, subject_of
from tests.torch_operators.summary import Row, is_good, line_of, run, summary

_START = 60.0  # seconds for the imports
_DTYPES = ("float32", "int64", "int32", "bool")


def main(arguments: list[str] | None = None) -> int:
    """Runs what is asked for, and prints it."""
    options = _options(arguments)
    limit = None if options.all else options.samples
    if options.alone:
        for name in options.names:
            print(json.dumps(run(name, options.dtypes, limit)), flush=True)
        return 0
    path = Path(options.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    wanted = options.names or [
        name for name, entry in operators().items() if options.subject in ("all", subject_of(entry))
    ]
    known = {row["name"]: row for row in _read(path)}
    left = options.names or [name for name in wanted if name not in known]
    rows = {name: known[name] for name in wanted if name in known}
    for number, row in enumerate(() if options.summary else _in_processes(left, options), 1):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        rows[row["name"]] = row
        print(f"{number}/{len(left)} {line_of(row)}", flush=True)
    print(summary(list(rows.values())))
    return 0 if all(map(is_good, rows.values())) else 1


def _in_processes(names: list[str], options: argparse.Namespace) -> Iterator[Row]:
    """Rows as they come; an operator that ends the process or takes too long has an error."""
    left = list(names)
    while left:
        command = [sys.executable, "-m", "tests.torch_operators", "--alone"]
        command += ["--samples", str(options.samples), *["--all"] * options.all]
        command += ["--dtypes", ",".join(options.dtypes), "--", *left]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            while left:
                row = _next_row(child, options.limit_seconds + _START)
                yield row or {"name": left[0], "error": "it ended the process, or took too long"}
                left.pop(0)
                if row is None:
                    break
            child.kill()


def _next_row(child: subprocess.Popen[bytes], seconds: float) -> Row | None:
    """The next line that the child prints, if it comes in time."""
    out = child.stdout
    if out is None or not select.select([out], [], [], seconds)[0]:
        return None
    line = out.readline()
    return json.loads(line) if line.strip() else None


def _read(path: Path) -> list[Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_operators", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, as the database names them")
    parser.add_argument("--subject", default="all", choices=("all", *SUBJECTS))
    parser.add_argument("--dtypes", default=_DTYPES, type=lambda text: tuple(text.split(",")))
    parser.add_argument("--samples", default=8, type=int, help="of each dtype, the first so many")
    parser.add_argument("--all", action="store_true", help="all samples")
    parser.add_argument("--results", default="build/torch_operators.jsonl", help="the file")
    parser.add_argument("--limit-seconds", default=120.0, type=float, help="for one operator")
    parser.add_argument(
        "--summary", action="store_true", help="of what is in the file; run nothing"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*operators()}:
        parser.error(f"the database has no {', '.join(sorted(unknown))}")
    if unknown := {*options.dtypes} - {*DTYPES}:
        parser.error(f"no dtypes: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
