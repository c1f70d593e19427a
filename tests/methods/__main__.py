"""Every public method with hostile values: `python -m tests.methods [PATTERN]`."""

from __future__ import annotations

import os

from tests.quick_xla import FLAGS, KERNELS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KERNELS))

import argparse
import fnmatch
import sys
import tempfile
import warnings

from tests.methods.instances import INSTANCES
from tests.methods.sweep import Case, Outcome, counted


def main() -> int:
    """Prints what is bare, and the counts; fails if more than 0.5 % is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="of the names in INSTANCES")
    parser.add_argument("--accepted", action="store_true", help="say what was accepted, too")
    arguments = parser.parse_args()
    told = ("bare", "accepted") if arguments.accepted else ("bare",)

    def tell(case: Case, value: str, outcome: Outcome) -> None:
        if outcome.kind in told:
            lines = outcome.said.splitlines() or [""]
            print(f"{outcome.kind}: {case} = {value}: {lines[0][:150]}", flush=True)

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        counts = counted(fnmatch.filter(INSTANCES, arguments.pattern), tell)
    total = sum(counts.values())
    print(f"{total} calls: {counts}")
    return int(counts.get("bare", 0) > total * 0.005)


if __name__ == "__main__":
    sys.exit(main())
