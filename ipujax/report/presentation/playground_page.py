"""The playground of schedules as an HTML page: one file that simulates them, without a server.

The simulator is a script of its own, which also runs where no page is: it sets
`globalThis.playground`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.report.presentation.bundle import (
    bundle_scripts,
    fill_template,
    frame_page,
    read_page_file,
    read_style,
)
from lowering import schedules

_USUAL_PHASES = (schedules.Phase.FORWARD, schedules.Phase.BACKWARD, schedules.Phase.WEIGHTS)
_NAME = re.compile(r"^  (\w+): \{", re.MULTILINE)  # of an entry of `SCHEDULES`
_STYLES = ("page/page.css", "page/views.css", "page/dialogs.css", "playground/playground.css")


class PlaygroundPage(str):
    """The text of the page; notebooks show what it draws."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return frame_page(self)


def render_playground(
    start: Mapping[str, Any],
    *,
    tables: Sequence[Mapping[str, Any]] = (),
    model: Mapping[str, Any] | None = None,
) -> PlaygroundPage:
    """Renders the page.

    Args:
      start: what the page begins with, as the state of `playground/state.js`.
      tables: schedules that the page cannot make, as `tabulate` gives them.
      model: the times of a model's stages, `forward`, `backward` and `weight`, the `unit` that all
        are in, and what they are, `about`.
    """
    substitutions = {
        "title": "Schedules of pipelines - ipujax",
        "style": read_style(*_STYLES),
        "start": _script_json({"start": start, "model": model}),
        "exercises": read_page_file("playground/exercises.html"),
        "engine": bundle_engine(tables),
        "script": bundle_scripts("playground/main.js"),
    }
    return PlaygroundPage(fill_template("playground/page.html", substitutions))


def bundle_engine(tables: Sequence[Mapping[str, Any]] = ()) -> str:
    """Returns the script of the simulator."""
    modules = bundle_scripts("playground/engine.js")
    registered = [entry.name for entry in schedules.list_schedules()]
    names = dict.fromkeys([*registered, *(table["name"] for table in tables)])
    data = f"const NAMES = {_script_json([*names])};\nconst TABLES = {_script_json(tables)};"
    return f"(() => {{\n{data}\n{modules}}})();"


@functools.cache
def list_ported_names() -> frozenset[str]:
    """Returns the names of the schedules that the simulator makes by itself, for any numbers."""
    return frozenset(_NAME.findall(read_page_file("playground/orders.js")))


def tabulate(name: str, cases: Sequence[schedules.Schedule]) -> dict[str, Any]:
    """Returns the tables of a schedule for some numbers of stages and micro-batches.

    Args:
      name: what the page calls it.
      cases: all with as many stages on each IPU, of which each is on one IPU.
    """
    return {
        "name": name,
        "title": name,
        "splits": any(schedule.splits_backward for schedule in cases),
        "perIpu": max((s.stages // len(set(s.ipus)) for s in cases), default=1),
        "cases": [
            {
                "stages": schedule.stages,
                "microBatches": schedule.micro_batches,
                "ipus": [group[0] for group in schedule.ipus],
                "copies": [[group[0] for group in copy] for copy in schedule.copies],
                "pattern": schedule.copy_pattern,
                "needs": _unusual_needs(schedule),
                "ticks": "|".join(" ".join(map(str, tick)) for tick in schedule.ticks),
            }
            for schedule in cases
        ],
    }


def _unusual_needs(schedule: schedules.Schedule) -> dict[str, list[str]]:
    """Returns what tasks of some kinds wait for: those that a page does not know by itself."""
    found: dict[str, list[str]] = {}
    for phase, stage in schedule.kinds:
        inputs = schedule.layout.inputs_of_kind(phase, stage)
        usual = schedules.inputs_of_task(phase, stage, schedule.stages)
        if phase not in _USUAL_PHASES or inputs != usual:
            found[f"{stage}{phase}"] = [f"{other}{needed}" for needed, other in inputs]
    return found


def _script_json(data: Any) -> str:
    """Returns JSON that can stand in a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
