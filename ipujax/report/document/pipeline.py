"""How a pipeline fills its IPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipujax.report.document.runs import from_repeats, from_runs, repeats, runs
from ipujax.report.document.strings import Strings
from lowering import machine

_PLAIN = (
    "schedule",
    "stages",
    "micro_batches",
    "ticks",
    "bubble_fraction",
    "utilisation",
    "cycles",
)


def encode(pipeline: machine.PipelineProfile, _: Strings) -> dict[str, Any]:
    """Fields by name; texts are few and written out."""
    return {
        **{name: getattr(pipeline, name) for name in _PLAIN},
        "tick_cycles": repeats(pipeline.tick_cycles),
        "stage_cycles": [
            {"stage": stage, "phase": phase, "cycles": cycles}
            for (stage, phase), cycles in pipeline.stage_cycles.items()
        ],
        "stage_ipus": [list(ipus) for ipus in pipeline.stage_ipus],
        "tasks": _tasks(pipeline.grid),
    }


def decode(data: Mapping[str, Any], _: Sequence[str]) -> machine.PipelineProfile:
    """The pipeline that `encode` wrote.

    Raises:
      ValueError: a phase that does not exist, or ticks that are not as many as micro-batches.
    """
    return machine.PipelineProfile(
        **{name: data[name] for name in _PLAIN},
        tick_cycles=from_repeats(data["tick_cycles"]),
        stage_cycles={
            (entry["stage"], entry["phase"]): entry["cycles"] for entry in data["stage_cycles"]
        },
        stage_ipus=tuple(tuple(ipus) for ipus in data["stage_ipus"]),
        grid=_grid(data["tasks"]),
    )


def _tasks(grid: machine.Grid) -> list[dict[str, Any]]:
    """Tasks of one stage and phase together, in the order of their ticks."""
    keys = np.stack([grid.stage, grid.phase.astype(np.int32)])
    kinds, member = np.unique(keys, axis=1, return_inverse=True)
    found: list[dict[str, Any]] = []
    for i, (stage, phase) in enumerate(kinds.T.tolist()):
        own = np.flatnonzero(member.reshape(-1) == i)
        found.append(
            {
                "stage": stage,
                "phase": machine.TASK_PHASES[phase],
                "ticks": runs(grid.tick[own]),
                "micro_batches": runs(grid.micro_batch[own]),
            }
        )
    return found


def _grid(tasks: Sequence[Mapping[str, Any]]) -> machine.Grid:
    parts = [np.empty((4, 0), dtype=np.int64)]
    for entry in tasks:
        ticks, micro_batches = from_runs(entry["ticks"]), from_runs(entry["micro_batches"])
        stage = np.full_like(ticks, entry["stage"])
        phase = np.full_like(ticks, machine.TASK_PHASES.index(entry["phase"]))
        parts.append(np.stack([stage, phase, micro_batches, ticks]))
    return machine.Grid.of(*np.concatenate(parts, axis=1))
