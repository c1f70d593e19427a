"""Reads many changed files, and says which of them did harm or failed with a bare error.

python -m tests.file_fuzz --reader executable --count 5000
python -m tests.file_fuzz --count 100               # of every reader
python -m tests.file_fuzz --reader report --number 17 --keep folder
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import time
from pathlib import Path

from tests.file_fuzz.readers import NAMES, reader
from tests.file_fuzz.readers.reader import write_files
from tests.file_fuzz.run import Outcome, check, child, make_files, outcomes, read_samples


def main(arguments: list[str] | None = None) -> int:
    """Runs the fuzzer; 1 if anything was wrong."""
    options = _options(arguments)
    if options.child:
        child(options.reader[0], options.seed, range(options.first, options.first + options.count))
        return 0
    if options.number is not None:
        return _one(options)
    return max([_many(name, options) for name in options.reader or NAMES])


def _one(options: argparse.Namespace) -> int:
    """Reads one changed file here, and keeps it if asked."""
    chosen = reader(options.reader[0])
    name, files = make_files(chosen, options.seed, options.number)
    if options.keep:
        write_files(files, Path(options.keep))
    read_samples(chosen)
    outcome = check(chosen, options.seed, options.number)
    print(f"{chosen.name} {options.number} (of {name}): {outcome.kind}\n{outcome.message}")
    return 0 if outcome.is_right else 1


def _many(name: str, options: argparse.Namespace) -> int:
    begun, kinds = time.monotonic(), collections.Counter[str]()
    wrong: dict[str, list[Outcome]] = collections.defaultdict(list)
    for outcome in outcomes(name, options.seed, options.first, options.count):
        kinds[outcome.kind] += 1
        if not outcome.is_right:
            wrong[outcome.kind + outcome.message[-200:]].append(outcome)
            if len(wrong[outcome.kind + outcome.message[-200:]]) == 1:
                again = f"--reader {name} --seed {options.seed} --number {outcome.number}"
                print(f"FAILED: {outcome.kind}\n{outcome.message}", flush=True)
                print(f"again: python -m tests.file_fuzz {again}\n", flush=True)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(f"{name}: {counts} in {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if wrong else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.file_fuzz", description=__doc__)
    parser.add_argument("--reader", action="append", choices=NAMES, help="one alone, or several")
    parser.add_argument("--count", type=int, default=100, help="how many changes of each")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other changes")
    parser.add_argument("--first", type=int, default=0, help="the first change's number")
    parser.add_argument("--number", type=int, help="read the files of this change alone, here")
    parser.add_argument("--keep", help="with --number, a folder to put the files into")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if (options.child or options.number is not None) and len(options.reader or ()) != 1:
        parser.error("name one --reader")
    return options


if __name__ == "__main__":
    logging.getLogger("ipujax").setLevel(logging.ERROR)
    sys.exit(main())
