"""A report made by hand: two IPUs of two tiles, with numbers that can be checked by eye."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from ipujax.report import Report
from lowering import machine, trace
from lowering.machine import ProgramNode

CHIP = dc.replace(machine.IPU2, name="tiny", tiles_per_ipu=2)
LINE = "model.py:7"


def small_report(label: str = "", **changes: Any) -> Report:
    """IPU 0 computes, then sends to IPU 1, which computes longer; `changes` to its profile."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "target": CHIP,
        "num_ipus": 2,
        "replication_factor": 3,
        "cycles": 130,
        "steps": machine.Steps(_steps()),
        "memory": _memory(),
        "liveness": _liveness(),
        "program": _program(),
        "operations": (),
        "default_share": 0.25,
        "mappings": {},
        "graph": machine.Graph(
            compute_sets=2, vertices={"Dot<float>": 4, "Tanh<float>": 1}, edges=14
        ),
    }
    profile = machine.Profile(**{**fields, **changes})
    return Report(profile=profile, elements=4, advice=(), arguments={}, label=label)


def _steps() -> trace.Trace:
    return trace.build_block(
        [
            (0, "compute", "tanh", LINE, 0, 40),
            (0, "inter_ipu", "copy", "", 40, 10),
            (1, "inter_ipu", "copy", "", 40, 10),
            (1, "compute", "dot_general", LINE, 50, 80),
        ]
    )


def _memory() -> machine.Memory:
    held = {
        "variables": [[100, 50], [0, 0]],
        "activations": [[30, 0], [60, 60]],
        "temporaries": [[4, 0], [8, 8]],
        "vertex_code": [[10, 10], [20, 20]],
        "control_code": [[5, 5], [5, 5]],
    }
    return machine.Memory(
        tile_peak_bytes=np.array([[149, 70], [93, 95]]),
        tile_categories={
            name: np.array(held.get(name, [[0, 0], [0, 0]])) for name in machine.CATEGORIES
        },
        always_live_bytes=np.array([180, 50]),
        peak_bytes=np.array([214, 186]),
        limit=CHIP.usable_bytes_per_tile,
        most_code_bytes=25,
        code_limit=CHIP.code_bytes_per_tile,
        biggest=(),
        remote_bytes=np.array([0, 0]),
    )


def _liveness() -> tuple[machine.Liveness, ...]:
    first = machine.Liveness(
        names=("tanh", "copy"),
        origins=(LINE, ""),
        operations=(0, None),
        bytes=np.array([34, 30]),
        temporary_bytes=np.array([4, 0]),
        tensors=(
            _tensor("float32[25]", "variables", "argument", [100, 0], None, None),
            _tensor("float16[25]", "variables", "argument", [0, 50], None, None),
            _tensor("float16[15]", "activations", "tanh", [30, 0], 0, 1),
        ),
    )
    second = machine.Liveness(
        names=("dot_general",),
        origins=(LINE,),
        operations=(1,),
        bytes=np.array([136]),
        temporary_bytes=np.array([16]),
        tensors=(_tensor("float32[30]", "activations", "copy", [60, 60], 0, 0),),
    )
    return first, second


def _tensor(
    name: str, category: str, operation: str, held: list[int], first: int | None, last: int | None
) -> machine.Lifetime:
    return machine.Lifetime(
        name=name,
        category=category,
        operation=operation,
        origin=LINE,
        mapping=machine.TileBytes(np.array(held)),
        first=first,
        last=last,
    )


def _program() -> ProgramNode:
    tanh = ProgramNode(kind="operation", name="tanh", cycles=40, ipu=0, origin=LINE)
    first = ProgramNode(kind="execute", name="first", cycles=40, ipu=0, children=(tanh,))
    copy = ProgramNode(kind="copy", name="copy", cycles=10)
    dot = ProgramNode(kind="operation", name="dot_general", cycles=40, ipu=1, origin=LINE)
    loop = ProgramNode(kind="repeat", name="loop", cycles=80, count=1, ipu=1, children=(dot, dot))
    return ProgramNode(kind="sequence", name="tiny", cycles=130, children=(first, copy, loop))
