"""The compute sets and exchanges of a call, tile by tile, as lists."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping

import numpy as np

from lowering.ground import Superstep, TileNumbers
from lowering.machine.cost import SUPERSTEP_CYCLES
from lowering.machine.target import Target
from lowering.machine.trace import KINDS, Block, On, Trace, distinct_children

RESULTS = "results"
"""The phase of a superstep, behind its name, in which results go to the tiles that keep them."""


@dc.dataclass(frozen=True, slots=True, eq=False)
class ComputeSet:
    """A compute set that a program executes.

    Attributes:
      name: the user's name, or the operation's and the kind of work.
      ipu: the IPU that runs it.
      vertices: int64 [tiles].
      runs: how often one call runs it.
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
class Exchange:
    """Data that moves between the tiles of an IPU, or between those of several.

    Attributes:
      name: the name of what it is for.
      ipu: the IPU whose tiles send and receive.
      runs: how often one call does it.
      cycles: of one run.
      received_bytes: int64 [tiles], one run: what several users on a tile need counts once.
      sent_bytes: int64 [tiles], one run: what several tiles get counts once.
    """

    name: str
    ipu: int
    runs: int
    cycles: int
    received_bytes: np.ndarray
    sent_bytes: np.ndarray


@dc.dataclass(frozen=True, slots=True)
class TileWork:
    """Where the vertices of an operation are.

    Attributes:
      vertices: how many the busiest tile has.
      tiles: how many tiles take part; 0 for moves of data, in which all may.
      first_tile: the first of them; they wrap around.
      step: what the user has laid out on tiles; None where the model has.
    """

    vertices: int
    tiles: int
    first_tile: int
    step: Superstep | None = None

    def fill_tiles(self, number: int, tiles: int) -> np.ndarray:
        """Returns int64 [tiles]: a number on the tiles that take part."""
        numbers = np.zeros(tiles, np.int64)
        numbers[(self.first_tile + np.arange(self.tiles or tiles)) % tiles] = number
        return numbers


_NOWHERE = TileWork(0, 0, 0)


@dc.dataclass(frozen=True, slots=True)
class _Step:
    """Equal steps of an IPU; the number of their operation finds their `TileWork`."""

    ipu: int
    kind: str
    name: str
    origin: str
    operation: int
    cycles: int


def list_compute_sets(
    trace: Trace, work: Mapping[int, TileWork], target: Target
) -> Iterator[ComputeSet]:
    """Yields what a call executes, in order; equal steps of one operation are one entry.

    Where the model has laid out an operation, all tiles that take part have as much as the busiest.

    Args:
      trace: the steps of the call.
      work: where operations are, by their numbers.
      target: the chip.
    """
    for step, runs in _count_steps(trace, "compute").items():
        where, tiles = work.get(step.operation, _NOWHERE), target.tiles_per_ipu
        name = step.name
        if where.step is None:
            vertices = where.fill_tiles(max(where.vertices, 1), tiles)
            tile_cycles = where.fill_tiles(step.cycles, tiles)
        else:
            name = where.step.name
            vertices = where.step.vertices.on_ipu(step.ipu, tiles)
            tile_cycles = where.step.tile_cycles.on_ipu(step.ipu, tiles)
            if not vertices.any():
                continue
        cycles = step.cycles + target.sync_cycles
        yield ComputeSet(name, step.ipu, vertices, runs, tile_cycles, cycles)


def list_exchanges(
    trace: Trace, work: Mapping[int, TileWork], target: Target
) -> Iterator[Exchange]:
    """Yields what moves between tiles, in order; see `list_compute_sets`.

    Where the model has laid out an operation, tiles send as much as they receive.
    """
    for step, runs in _count_steps(trace, "exchange", "inter_ipu").items():
        where, tiles = work.get(step.operation, _NOWHERE), target.tiles_per_ipu
        if where.step is not None:
            received, sent = (n.on_ipu(step.ipu, tiles) for n in _bytes_of_step(step, where.step))
            if received.any() or sent.any():
                yield Exchange(where.step.name, step.ipu, runs, step.cycles, received, sent)
        elif step.kind == "exchange":
            fixed = target.exchange_cycles + SUPERSTEP_CYCLES
            bytes_ = round((step.cycles - fixed) * target.exchange_bytes)
            received = where.fill_tiles(bytes_, tiles)
            yield Exchange(step.name, step.ipu, runs, step.cycles, received, received)


def _bytes_of_step(step: _Step, laid_out: Superstep) -> tuple[TileNumbers, TileNumbers]:
    """Returns what tiles receive and send in an exchange that the user has laid out."""
    if step.kind == "inter_ipu":
        moved = laid_out.between_ipus
        return (TileNumbers(), TileNumbers()) if moved is None else (moved.received, moved.sent)
    if step.name.endswith(f"/{laid_out.name}/{RESULTS}"):
        return laid_out.results_received, laid_out.results_sent
    return laid_out.received, laid_out.sent


def _count_steps(trace: Trace, *kinds: str) -> dict[_Step, int]:
    """Counts equal steps of some kinds, in the order of their first runs."""
    counts: dict[_Step, int] = {}
    for step, runs in _walk(trace, [KINDS.index(kind) for kind in kinds], None):
        counts[step] = counts.get(step, 0) + runs
    return counts


def _walk(trace: Trace, kinds: list[int], ipu: int | None) -> Iterator[tuple[_Step, int]]:
    if isinstance(trace, Block):
        for row in np.flatnonzero(np.isin(trace.kind, kinds)).tolist():
            code = int(trace.name[row])
            where = int(trace.ipu[row]) if ipu is None else ipu
            names = trace.names[code], trace.origins[code], trace.operations[code]
            yield _Step(where, KINDS[int(trace.kind[row])], *names, int(trace.cycles[row])), 1
        return
    inner = trace.ipu if isinstance(trace, On) and ipu is None else ipu
    for part, times in distinct_children(trace):
        for step, runs in _walk(part, kinds, inner):
            yield step, runs * times
