"""`python -m benchmarks [name ...]`: the table of ratios; all of it, or the named modules' rows."""

from __future__ import annotations

import importlib
import sys

from benchmarks.measure import Row, table

MODULES = (
    "calls",
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
    "processes",
    "modelling",
    "reports",
    "checkpoints",
    "operators",
)
FILES = {"modelling": "modelling_time"}


def main(names: list[str]) -> int:
    """Measures and prints; the exit status says whether the names were known."""
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(MODULES)}")
        return 2
    rows: list[Row] = []
    for name in names or MODULES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"benchmarks.{FILES.get(name, name)}").rows()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
