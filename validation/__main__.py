"""`python -m validation FILE.jsonl`: what the machine model predicts of measured rows.

Each line of the file is a `validation.row.Row` in JSON. Rows whose workload the model can
express are predicted and printed with predicted / measured; the others are skipped, with the
reason. Then come the families, and one line over all rows measured on hardware, by the emulator or
by the compiler.
"""

from __future__ import annotations

import argparse
import dataclasses as dc
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from validation import FAMILIES, predict
from validation.row import KINDS, BrokenRowError, Row, SkipError, parse


@dc.dataclass(frozen=True)
class Result:
    """A row and what came of it.

    Attributes:
      row: as it was read.
      family: the module that predicted it; "" if it was skipped.
      predicted: in the row's unit.
      reason: why it was skipped.
      assumptions: what the row did not say.
    """

    row: Row
    family: str = ""
    predicted: float = 0.0
    reason: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Predicted / measured."""
        return self.predicted / self.row.measured

    @property
    def error(self) -> float:
        """|predicted - measured| / measured."""
        return abs(self.ratio - 1)


def read(lines: Iterable[str]) -> tuple[list[Row], list[str]]:
    """The rows of a file, and what is wrong with the lines that are none; empty lines are fine."""
    rows: list[Row] = []
    broken: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(parse(line))
        except BrokenRowError as error:
            broken.append(f"line {number}: {error}")
    return rows, broken


def evaluate(row: Row, families: Sequence[str] = FAMILIES) -> Result:
    """Predicts one row as one of the families, or says why not."""
    try:
        family, prediction = predict(row, families)
        value = prediction.in_unit(row.unit, row.target.clock_hz)
    except SkipError as skip:
        return Result(row, reason=str(skip))
    except Exception as error:  # one row that fails must not take the others with it
        return Result(row, reason=f"the model failed: {type(error).__name__}: {error}")
    return Result(row, family, value, assumptions=prediction.assumptions)


def summary(results: Sequence[Result]) -> str:
    """The last line: over the rows of the kinds that count."""
    errors = [r.error for r in results if r.family and r.row.kind in KINDS]
    skipped = sum(not r.family and r.row.kind in KINDS for r in results)
    return f"rows={len(errors)} skipped={skipped} {_statistics(errors)}"


def families(results: Sequence[Result]) -> list[str]:
    """A line for each family: how many rows, and their errors."""
    lines = [f"{'family':14} rows  median error  p90 error  median ratio"]
    for family in dict.fromkeys(r.family for r in results if r.family):
        mine = [r for r in results if r.family == family and r.row.kind in KINDS]
        if not mine:
            continue
        errors = [r.error for r in mine]
        ratio = np.median([r.ratio for r in mine])
        lines.append(
            f"{family:14} {len(mine):4}  {np.median(errors):12.1%}  "
            f"{np.percentile(errors, 90):9.1%}  {ratio:12.2f}"
        )
    return lines


def _statistics(errors: Sequence[float]) -> str:
    if not errors:
        return "median_abs_rel_err=nan p90_abs_rel_err=nan"
    median, most = np.median(errors), np.percentile(errors, 90)
    return f"median_abs_rel_err={median:.4f} p90_abs_rel_err={most:.4f}"


def _line(result: Result, width: int) -> str:
    row = result.row
    if not result.family:
        return f"{row.id:{width}}  skipped: {result.reason}"
    aside = "" if row.kind in KINDS else f"  ({row.kind}, not counted)"
    return (
        f"{row.id:{width}}  {result.predicted:12.6g} / {row.measured:<12.6g} "
        f"{row.unit.split()[0]:9} = {result.ratio:5.2f}  {result.family}{aside}"
    )


def markdown(results: Sequence[Result]) -> list[str]:
    """The table that stands in docs/validation.md: every predicted row, by family."""
    lines: list[str] = []
    for family in dict.fromkeys(r.family for r in results if r.family):
        lines += ["", f"### {family}", "", "| row | measured | predicted | ratio | source |"]
        lines.append("|---|---|---|---|---|")
        for result in (r for r in results if r.family == family):
            row, source = result.row, result.row.source.removeprefix("github ").split(" (")[0]
            lines.append(
                f"| {row.id} | {row.measured:.5g} {row.unit.split()[0]} "
                f"| {result.predicted:.5g} | {result.ratio:.2f} | {source} |"
            )
    lines += ["", "### Not expressed", "", "| row | reason |", "|---|---|"]
    lines += [f"| {r.row.id} | {r.reason} |" for r in results if not r.family]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads, predicts and prints; the exit status is 1 if a line is broken."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("file", type=Path, help="measurements, one JSON object a line")
    parser.add_argument("--assumptions", action="store_true", help="print what rows do not say")
    parser.add_argument("--family", choices=FAMILIES, help="only the rows of this family")
    parser.add_argument("--markdown", type=Path, help="write the rows as a table to this file")
    given = parser.parse_args(arguments)
    try:
        text = given.file.read_text(encoding="utf-8")
    except OSError as error:
        print(f"{given.file}: {error.strerror}", file=sys.stderr)
        return 2
    rows, broken = read(text.splitlines())
    for message in broken:
        print(f"{given.file}: {message}", file=sys.stderr)
    start = time.perf_counter()
    results: list[Result] = []
    width = max((len(row.id) for row in rows), default=0)
    for row in rows:
        result = evaluate(row, [given.family] if given.family else FAMILIES)
        results.append(result)
        print(_line(result, width), flush=True)
        for assumption in result.assumptions if given.assumptions else ():
            print(f"{'':{width}}  assumed: {assumption}")
    print("", *families(results), "", sep="\n")
    if given.markdown:
        given.markdown.write_text("\n".join(markdown(results)) + "\n", encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    print(summary(results))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
