"""The report of a graph's program: that of every program, with what happens on each tile."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np

from ipujax.poplar import program as programs
from ipujax.poplar.graph import NO_TILE, Graph
from ipujax.poplar.lower_program import ProgramLowering
from ipujax.poplar.superstep_costs import SuperstepTiles
from ipujax.poplar.tensors import Tensor
from ipujax.report import Report


@dc.dataclass(frozen=True, slots=True, eq=False)
class ComputeSetCost:
    """A compute set that a program executes.

    Attributes:
      name: the user's name.
      ipu: the IPU that runs it.
      vertices: int64 [tiles].
      runs: how often one call runs it; loops of unknown length count once.
      tile_cycles: int64 [tiles]: the vertices alone, one run.
      cycles: of one run, with launch and sync.
    """

    name: str
    ipu: int
    vertices: np.ndarray
    runs: int
    tile_cycles: np.ndarray
    cycles: int


@dc.dataclass(frozen=True, slots=True, eq=False)
class ExchangeCost:
    """Data that moves between tiles for a compute set or a copy.

    Attributes:
      name: the name of what it is for.
      runs: how often one call does it.
      cycles: of one run.
      received_bytes: int64 [tiles], one run.
      sent_bytes: int64 [tiles], one run: an element that leaves a tile is sent once.
    """

    name: str
    runs: int
    cycles: int
    received_bytes: np.ndarray
    sent_bytes: np.ndarray


@dc.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GraphReport(Report):
    """The report of a program of a graph.

    Attributes:
      compute_sets: what is executed, in order.
      exchanges: what moves between tiles, in order.
    """

    compute_sets: tuple[ComputeSetCost, ...] = ()
    exchanges: tuple[ExchangeCost, ...] = ()


LAUNCH = 11
_CATEGORIES = ("variables", "constants", "vertex_state")


def make_graph_report(
    report: Report, graph: Graph, lowering: ProgramLowering, program: programs.Program
) -> GraphReport:
    """Returns a report with the tiles of its compute sets, exchanges and variables."""
    chip = graph.getTarget().chip
    sets: list[ComputeSetCost] = []
    exchanges: list[ExchangeCost] = []
    temporaries = np.zeros(graph.getTarget().getNumTiles(), np.int64)
    for step, runs in _steps_of(program, lowering, 1):
        for exchange in (step.before, step.after):
            if exchange.busiest_bytes:
                cycles = chip.exchange_cycles + -(-exchange.busiest_bytes // chip.exchange_bytes)
                exchanges.append(
                    ExchangeCost(step.name, runs, cycles, exchange.received, exchange.sent)
                )
        if step.step.kind:
            cycles = int(step.tile_cycles.max(initial=0)) + LAUNCH + chip.sync_cycles
            sets.append(ComputeSetCost(step.name, 0, step.vertices, runs, step.tile_cycles, cycles))
            temporaries = np.maximum(temporaries, step.before.received + step.after.sent)
    categories = {**_variable_bytes(graph), "temporaries": temporaries[None]}
    memory = dc.replace(report.memory, tile_categories=MappingProxyType(categories))
    fields = {field.name: getattr(report, field.name) for field in dc.fields(report)}
    fields["profile"] = dc.replace(report.profile, memory=memory)
    return GraphReport(**fields, compute_sets=tuple(sets), exchanges=tuple(exchanges))


def _steps_of(
    program: programs.Program, lowering: ProgramLowering, runs: int
) -> Iterator[tuple[SuperstepTiles, int]]:
    """Yields compute sets and copies between tensors, with how often they run."""
    match program:
        case programs.Execute():
            yield lowering.tiles_of(program), runs
        case programs.Operation() if program.cycles is not None:
            yield lowering.tiles_of(program), runs
        case programs.Copy() if isinstance(program.src, Tensor) and isinstance(program.dst, Tensor):
            yield lowering.tiles_of(program), runs
        case programs.Repeat():
            yield from _steps_of(program.body, lowering, runs * program.count)
        case _:
            for part in program.parts():
                yield from _steps_of(part, lowering, runs)


def _variable_bytes(graph: Graph) -> dict[str, np.ndarray]:
    """Returns the bytes of variables and constants: int64 [ipus, tiles] each."""
    tiles = graph.getTarget().getNumTiles()
    found = {name: np.zeros((1, tiles), np.int64) for name in _CATEGORIES}
    for variable in graph.variables:
        where = graph.tile_of[variable.start : variable.start + variable.size]
        counts = np.bincount(where[where != NO_TILE], minlength=tiles)
        found[variable.category][0] += counts * variable.type.size
    return found
