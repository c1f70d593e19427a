"""Runs ONNX's own node cases and says which agree: `python -m tests.onnx_operators [PATTERN]`."""

from __future__ import annotations

import os

from tests.quick_xla import FLAGS, KERNELS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KERNELS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import argparse
import collections
import fnmatch
import sys

from tests.onnx_operators.cases import cases, kind_of
from tests.onnx_operators.compare import compare


def main() -> int:
    """Prints a line for each case that does not agree, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="of the cases' names")
    parser.add_argument("--every", type=int, default=1, help="of how many cases to run one")
    arguments = parser.parse_args()
    names = fnmatch.filter(cases(), arguments.pattern)[:: arguments.every]
    agree: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for number, name in enumerate(names, 1):
        kind = kind_of(cases()[name])
        counts[kind] += 1
        if kind == "dense":
            result = compare(cases()[name])
            agree[kind] += result.agrees
            if not result.agrees:
                print(f"{name}: {result.problem.splitlines()[0]}", flush=True)
        print(f"\r{number} of {len(names)}", end="", file=sys.stderr)
    print()
    for kind, count in counts.items():
        told = f"{agree[kind]} of {count} agree" if kind == "dense" else f"{count} not asked for"
        print(f"{kind}: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
