"""`python -m tests.torch_models [NAMES]`: runs models both ways, prints a table.

Each is in a process of its own, and its result a line of JSON in a file; what is there already is
not run again, but for errors. The exit status is 1 if a result is not PyTorch's.
"""

from __future__ import annotations

import argparse
import dataclasses as dc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.quick_xla import ENVIRONMENT
from tests.torch_models.catalog import FAMILIES, names
from tests.torch_models.compare import LIMIT, Error, Result, compare

_HEADER = """\
| model | parameters | forward | loss | gradients | step | rounding | ours |
|---|---|---|---|---|---|---|---|"""

Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Runs what is asked for, and prints it."""
    options = _options(arguments)
    if options.alone:
        (name,) = options.names
        print(json.dumps(dc.asdict(compare(*name.split("/")))))
        return 0
    path = Path(options.results)
    known = {row["model"]: row for row in _read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = options.names or names((options.family,) if options.family else tuple(FAMILIES))
    print(_HEADER)
    wrong: list[str] = []
    for number, name in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {name} ...", file=sys.stderr, flush=True)
        row = known.get(name)
        if row is None or "error" in row:
            row = {"model": name, **_alone(name, options.limit)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
        if not _is_good(row):
            wrong.append(name)
    print(f"\n{len(chosen) - len(wrong)} of {len(chosen)} are PyTorch's{_list(wrong)}")
    return 1 if wrong else 0


def _alone(name: str, limit: float) -> Row:
    """The result of a model, or an error, from a process of its own."""
    command = [sys.executable, "-m", "tests.torch_models", "--alone", name]
    environment = {"JAX_PLATFORMS": "cpu", **ENVIRONMENT, **os.environ}
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, env=environment, text=True,
            timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:.0f} s"}
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error:" in line]
        return {"error": said[-1] if said else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _read(path: Path) -> list[Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _result(row: Row) -> Result:
    errors = {name: Error(**value) for name, value in row.items() if isinstance(value, dict)}
    return Result(**{name: row[name] for name in row if name != "model"} | errors)


def _is_good(row: Row) -> bool:
    return "error" not in row and _result(row).agrees


def _line(row: Row) -> str:
    """A row of the table."""
    if "error" in row:
        return f"| {row['model']} | {row['error']} |"
    result = _result(row)
    gradients = result.gradients
    compared = (result.forward, result.loss, gradients, result.step)
    rounding = gradients and gradients.theirs
    # Asked for only where these are apart.
    ours = None if gradients is None or gradients.apart <= LIMIT else gradients.ours
    errors = (*(error and error.apart for error in compared), rounding, ours)
    cells = (
        row["model"],
        f"{result.parameters / 1e6:.2f} M",
        *("-" if error is None else f"{error:.1g}" for error in errors),
    )
    return f"| {' | '.join(cells)} |"


def _list(wrong: list[str]) -> str:
    return f"; not {', '.join(wrong)}" if wrong else ""


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_models", description=__doc__)
    parser.add_argument("names", nargs="*", help="as library/name; all without")
    parser.add_argument("--family", choices=tuple(FAMILIES), help="all of one library")
    parser.add_argument("--results", default="build/torch_models.jsonl", help="the file")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one model")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*names()}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
