"""Files of JSON that hold plans: written, and read without running anything in them."""

from __future__ import annotations

import dataclasses as dc
import json
import math
import os
from typing import TYPE_CHECKING, Any, cast

from ipujax.ground import PlanError, files, json_text
from ipujax.planner.plan_checks import check

if TYPE_CHECKING:
    from ipujax.planner.plan import Plan

_FORMAT = "ipujax plan 2"
_BOUNDS = json_text.Bounds(containers=100_000, values=1_000_000)
_MOST_BYTES = 2**24

_Path = str | os.PathLike[str]


def save_plan(plan: Plan, path: _Path) -> None:
    """Writes a plan to a file; see `Plan.save`."""
    check.require_path(path, "where to save a plan")
    text = json.dumps({"format": _FORMAT, **dc.asdict(plan)}, indent=1)
    try:
        files.write_text(path, text + "\n")
    except OSError as error:
        raise PlanError(
            f"the plan cannot be written: {error}",
            fix="name a file in a folder that exists and that you may write to",
        ) from error


def read_plan_fields(path: _Path) -> dict[str, Any]:
    """Reads the fields of a plan from a file, as values of JSON.

    Raises:
      PlanError: a file that cannot be read, or that is no plan.
    """
    check.require_path(path, "where to load a plan from")
    try:
        read = json_text.parse_bounded_json(files.read_bytes(path, _MOST_BYTES), _BOUNDS)
    except (OSError, ValueError) as error:
        raise _refuse_file(path, str(error)) from error
    if not isinstance(read, dict) or read.get("format") != _FORMAT:
        raise _refuse_file(path, f"it does not say that it is {_FORMAT!r}")
    return {name: value for name, value in read.items() if name != "format"}


def _refuse_file(path: _Path, reason: str) -> PlanError:
    return PlanError(
        f"no plan can be read from {os.fspath(path)}: {reason}",
        fix="give the path of a file that `Plan.save` wrote",
    )


class FieldReader:
    """Reads dataclasses of numbers, texts and flags from values of JSON.

    Args:
      path: the file, for messages.
    """

    def __init__(self, path: _Path):
        self._path = path

    def read_number(self, value: Any, name: str, *, is_count: bool = False) -> Any:
        """Returns a number that is not negative; an int, if it counts something."""
        is_number = type(value) in ((int,) if is_count else (int, float))
        if not is_number or not 0 <= value < math.inf:
            raise _refuse_file(self._path, f"{name} is {value!r:.60}")
        return value

    def read_text(self, value: Any, name: str) -> str:
        """Returns a text."""
        return cast(str, self._read_instance(value, str, name))

    def read_flag(self, value: Any, name: str) -> bool:
        """Returns True or False."""
        return cast(bool, self._read_instance(value, bool, name))

    def read_row(self, value: Any, name: str) -> list[Any]:
        """Returns the entries of a list."""
        return cast("list[Any]", self._read_instance(value, list, name))

    def read_fields(self, value: Any, fields: type, name: str) -> dict[str, Any]:
        """Returns the fields of a dataclass, all of them and no others."""
        entries = cast("dict[str, Any]", self._read_instance(value, dict, name))
        expected = {field.name for field in dc.fields(fields)}
        if entries.keys() != expected:
            different = ", ".join(sorted(expected ^ entries.keys()))
            raise _refuse_file(self._path, f"{name} lacks, or should not have, {different:.100}")
        return entries

    def refuse(self, reason: str) -> PlanError:
        """Returns the error of a file that contradicts itself."""
        return _refuse_file(self._path, reason)

    def _read_instance(self, value: Any, kind: type, name: str) -> Any:
        if not isinstance(value, kind):
            raise _refuse_file(self._path, f"{name} is {value!r:.60}")
        return value
