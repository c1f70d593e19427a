"""`python -m benchmarks [name ...]`: the table of ratios; all of it, or the named modules' rows.

With `--markdown FILE`, the table is also written as the page of the documentation has it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from benchmarks.markdown import markdown_table
from benchmarks.measure import Row, table

MODULES = (
    "calls",
    "many_arguments",
    "lowering_time",
    "first_call",
    "streaming",
    "estimators",
    "serving",
    "convolutions",
    "keras",
    "pytorch",
    "onnx",
    "engines",
    "several_ipus",
    "pipeline",
    "stages_in_function",
    "processes",
    "modelling",
    "reports",
    "checkpoints",
    "operators",
    "planning",
)
FILES = {"modelling": "modelling_time"}


def main(arguments: list[str]) -> int:
    """Measures and prints; the exit status says whether the names were known."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(MODULES)}")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="where to write the table")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in MODULES]:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(MODULES)}")
        return 2
    measured: dict[str, list[Row]] = {}
    for name in given.names or MODULES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        start = time.perf_counter()
        measured[name] = importlib.import_module(f"benchmarks.{FILES.get(name, name)}").rows()
        print(f"  took {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if given.markdown is not None:  # after each: an interruption loses the last one only
            command = " ".join(["python -m benchmarks", *given.names])
            given.markdown.write_text(markdown_table(measured, command), "utf-8")
    print(table([row for rows in measured.values() for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
