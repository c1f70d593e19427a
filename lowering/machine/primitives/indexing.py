"""Dynamic slices, lookups and scatters.

The original has a tensor that is sliced dynamically lie so that every tile holds the same part of
each slice (popops: createSliceableTensor); slicing then moves nothing but the offset. Lookups and
scatters of rows (popops: multiSlice, multiUpdate, multiUpdateAdd) are planned: rows, columns and
indices are cut so that the slowest tile is soonest done (popops: embedding::plan).
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Iterator

from lowering.machine.cost import Cost, Operation, Phase, Shape, Wanted
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.planner.constants import DEFAULT_PROPORTION
from lowering.machine.primitives.layout import COPY_BYTES_PER_CYCLE, COPY_CALL
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    alike,
    camel,
    ceil_div,
    fastest,
    on_worker,
    spread,
    supervisor,
    vertex,
    width,
)
from lowering.machine.target import Target

INDEX_BYTES = 4
# docs/hardware.md, Other vertices: 25 + 6 x (39 + (24 + 2 x bytes / 8 / worker) x slices).
SLICE_LAUNCH = 25
SLICE_START = 39
SLICE_EACH = 24
SLICE_VECTOR = 2


def dynamic_slice(op: Operation, target: Target) -> Cost:
    """The faster of two ways: every tile has a part of each slice, or slices lie on some tiles."""
    whole, part = op.operands[0], op.operands[1] if _writes(op) else op.result
    pairs = zip(whole.dims, part.dims, strict=False)
    axes = [axis for axis, (extent, taken) in enumerate(pairs) if taken < extent]
    if not part.elements or not axes:
        return FREE
    return fastest([_sliceable(op, part, axes, target), _shifted(op, part, target)], target)


def _writes(op: Operation) -> bool:
    return op.name not in ("dynamic_slice", "gather")


def _sliceable(op: Operation, part: Shape, axes: list[int], target: Target) -> Cost:
    """Every tile copies its part of the slices, one sliced axis after the other."""
    slices = math.prod(part.dims[axis] for axis in axes)
    region = Shape((part.elements // slices,), part.dtype)
    lying = spread(region, target)
    vectors = ceil_div(lying.most_bytes, 8 * target.workers)
    worker = SLICE_START + (SLICE_EACH + SLICE_VECTOR * vectors) * slices
    fewer = lying.used < spread(op.operands[0], target).used  # tiles on which the slices lie
    sent = lying.most_bytes * slices if fewer else 0
    name = camel(op.name)
    phase = Phase(name, supervisor(worker, target, SLICE_LAUNCH), float(INDEX_BYTES + sent))
    cost = Cost(
        phases=(phase,) * (1 if _writes(op) else len(axes)),
        vertices=vertex(f"popops::{name}", part.dtype, lying.used),
        in_place=_writes(op),
    )
    return _in_order(f"sliceable{axes}", op, cost, target)


def _in_order(layout: str, op: Operation, cost: Cost, target: Target) -> Cost:
    """What is read from, or written to, lies over all tiles in an order of its own."""
    wanted = Wanted(spread(op.operands[0], target).used, layout)
    others = (None,) * (len(op.operands) - 1)
    results = (wanted if _writes(op) else None,)
    return dc.replace(cost, operands=(wanted, *others), results=results)


def _shifted(op: Operation, part: Shape, target: Target) -> Cost:
    """Every tile receives its share of the part from where it lies, and copies it into place.

    The part may lie on a few of the whole's tiles, which then send, or take, all that they hold.
    """
    share = spread(part, target).most_bytes
    held = min(part.bytes, spread(op.operands[0], target).most_bytes)
    copied = held if _writes(op) else share
    name = camel(op.name)
    cycles = COPY_CALL + copied / COPY_BYTES_PER_CYCLE
    return Cost(
        phases=(Phase(name, cycles, float(INDEX_BYTES + max(share, held))),),
        temporary_bytes=float(copied),
        vertices=vertex(f"popops::{name}", part.dtype, spread(part, target).used),
        in_place=_writes(op),
    )


@dc.dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a table, some of which are read or written.

    Attributes:
      rows: of the table.
      row: elements of one.
      count: how many indices there are.
      dtype: of the elements.
    """

    rows: int
    row: int
    count: int
    dtype: str


@dc.dataclass(frozen=True, slots=True)
class Worker:
    """Worker cycles: start + in range x (each + vector x vectors of a row) + missed x others.

    `width` is how many elements `vector` cycles deal with; 0: as many as `atom` bytes hold.
    """

    start: float
    each: float
    vector: float
    width: int = 0
    atom: int = VECTOR_BYTES
    missed: float = 8.0

    def cycles(self, hits: float, others: float, row: int, dtype: str) -> float:
        """Of one worker, for so many indices in range and out of it."""
        held = max(1, self.atom // Shape((), dtype).element_bytes)
        vectors = ceil_div(row, self.width or held)
        return self.start + hits * (self.each + self.vector * vectors) + others * self.missed


# docs/hardware.md, Other vertices: (vector cycles, elements) (2, 2), for bytes (3, 4).
_WORKERS = {"gather": Worker(30, 19, 2, 2), "scatter": Worker(29, 19, 2, 2)}
_BYTES = (3, 4)
_ADD = Worker(33, 12, 3, atom=4)  # multiUpdateAdd: 33 + 11..12 per index + 3 per 32-bit atom


def _for(worker: Worker, dtype: str) -> Worker:
    if Shape((), dtype).element_bytes > 1 or not worker.width:
        return worker
    return dc.replace(worker, vector=_BYTES[0], width=_BYTES[1])


def _splits(limit: int, tiles: int) -> Iterator[int]:
    """Powers of two, and the limit itself, up to the number of tiles."""
    yield from (1 << i for i in range(min(limit, tiles).bit_length()))
    if limit <= tiles:
        yield limit


@functools.lru_cache(maxsize=4096)
def planned(lookup: Lookup, worker: Worker, writes: bool, target: Target) -> Cost:
    """The fastest of the ways to cut a lookup whose temporary memory is within bounds.

    Rows, columns and indices are cut over tiles. Where the fastest cut of all takes more than the
    planner's share of a tile, parts of the indices one after the other are tried beside it. If
    nothing fits, the smallest is taken.
    """
    bound = DEFAULT_PROPORTION * target.bytes_per_tile
    tried: list[Cost] = []
    repeats, enough = 1, False
    while not enough:
        part = dc.replace(lookup, count=ceil_div(lookup.count, repeats))
        costs = [
            dc.replace(_cut(part, worker, writes, cuts, target), repeats=repeats)
            for cuts in _cuts(part, target)
        ]
        tried += costs
        repeats *= 2
        enough = fastest(costs, target).temporary_bytes <= bound or part.count <= 1
    fitting = [cost for cost in tried if cost.temporary_bytes <= bound]
    smallest = min(tried, key=lambda cost: cost.temporary_bytes)
    return fastest(fitting or [smallest], target)


def _cuts(lookup: Lookup, target: Target) -> Iterator[tuple[int, int, int]]:
    """Parts of columns, rows and indices, on different tiles."""
    tiles = target.tiles_per_ipu
    for columns in _splits(ceil_div(lookup.row, width(lookup.dtype)), tiles):
        for rows in _splits(lookup.rows, tiles // columns):
            for indices in _splits(lookup.count, tiles // columns // rows):
                yield columns, rows, indices


def _cut(
    lookup: Lookup, worker: Worker, writes: bool, cuts: tuple[int, int, int], target: Target
) -> Cost:
    columns, rows, indices = cuts
    size = Shape((), lookup.dtype).element_bytes
    grains = ceil_div(ceil_div(lookup.row, width(lookup.dtype)), columns)
    wide = min(lookup.row, grains * width(lookup.dtype))
    mine = ceil_div(lookup.count, indices)
    hits = on_worker(ceil_div(mine, rows), target)
    others = on_worker(mine, target) - hits
    table = ceil_div(lookup.rows, rows) * wide * size
    moved = mine * wide * size  # a place for every index, found or not
    compute = supervisor(worker.cycles(hits, others, wide, lookup.dtype), target)
    shared = table * (1 - 1 / indices)  # of the table's part: each has a copy, or sums are merged
    sent = mine * INDEX_BYTES + (moved if writes else shared)
    waiting = shared + moved if writes else shared
    phases = [Phase("MultiUpdate" if writes else "MultiSlice", compute, sent)]
    if not writes and rows > 1:  # one of the candidates from every cut of rows
        waiting = moved + max(shared, moved)
        final = ceil_div(mine, rows)
        again = worker.cycles(on_worker(final, target), 0, wide, lookup.dtype)
        candidates = float(final * rows * wide * size)
        phases.append(Phase("MultiSlice", supervisor(again, target), candidates))
    if writes and indices > 1:  # each copy's changes, added up where the row lies
        phases.append(Phase("Reduce", table / 8, shared))
    used = columns * rows * indices
    return Cost(
        phases=tuple(phases),
        temporary_bytes=float(waiting + mine * INDEX_BYTES),
        vertices=vertex(f"popops::{phases[0].name}", lookup.dtype, used),
    )


def lookup_of_rows(op: Operation, target: Target) -> Cost:
    """Reads, or changes in place, the rows that the indices name.

    The table lies over all tiles in the plan's order, the same for lookups and updates.
    """
    table, indices = op.operands[:2]
    chosen = op.operands[2] if _writes(op) else op.result
    if not chosen.elements or not table.elements:
        return FREE
    count = max(1, math.prod(indices.dims[:-1]))
    row = max(1, chosen.elements // count)
    lookup = Lookup(max(1, table.elements // row), row, count, table.dtype)
    worker = _for(_WORKERS.get(op.name, _ADD), table.dtype)
    cost = planned(lookup, worker, _writes(op), target)
    cost = _in_order(f"rows{[lookup.rows, lookup.row]}", op, cost, target)
    return dc.replace(cost, in_place=True, flops=float(chosen.elements)) if _writes(op) else cost


_SCATTERS = "scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub"

RULES: dict[str, Rule] = {
    **alike(dynamic_slice, "dynamic_slice dynamic_update_slice"),
    **alike(lookup_of_rows, "gather " + _SCATTERS),
}
