"""The cost of dynamic slices, lookups and scatters.

The original lays out a tensor that is sliced dynamically so that every tile holds the same part of
each slice (popops: createSliceableTensor); slicing then moves nothing but the offset. Lookups and
scatters of rows (popops: multiSlice, multiUpdate, multiUpdateAdd) are planned: rows, columns and
indices are cut so that the slowest tile is soonest done (popops: embedding::plan).
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Iterator

from lowering.machine.cost import Cost, Operation, Phase, Shape, WantedLayout
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.planner.planner_constants import DEFAULT_PROPORTION
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    camel_case,
    ceil_div,
    default_mapping,
    elements_per_worker,
    fastest_cost,
    is_float,
    one_vertex_per_tile,
    rules_for_names,
    supervisor_cycles,
    vector_width,
)
from lowering.machine.primitives.view_rules import COPY_BYTES_PER_CYCLE, COPY_CALL
from lowering.machine.target import Target

INDEX_BYTES = 4
# docs/hardware.md, Other vertices: 25 + 6 x (39 + (24 + 2 x bytes / 8 / worker) x slices).
SLICE_LAUNCH = 25
SLICE_START = 39
SLICE_EACH = 24
SLICE_VECTOR = 2


def dynamic_slice_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a slice: of parts on every tile, or of slices on some tiles."""
    tensor, part = op.operands[0], op.operands[1] if _writes_operand(op) else op.first_result
    pairs = zip(tensor.dims, part.dims, strict=False)
    axes = [axis for axis, (extent, slice_extent) in enumerate(pairs) if slice_extent < extent]
    if not part.elements or not axes:
        return FREE
    return fastest_cost(
        [_cost_of_local_slices(op, part, axes, target), _cost_of_shifted_slice(op, part, target)],
        target,
    )


def _writes_operand(op: Operation) -> bool:
    return op.name not in ("dynamic_slice", "gather")


def _cost_of_local_slices(op: Operation, part: Shape, axes: list[int], target: Target) -> Cost:
    """Returns the cost if every tile copies its part of the slices, one axis after the other."""
    slices = math.prod(part.dims[axis] for axis in axes)
    region = Shape((part.elements // slices,), part.dtype)
    slice_mapping = default_mapping(region, target)
    vectors = ceil_div(slice_mapping.most_bytes, 8 * target.workers)
    worker = SLICE_START + (SLICE_EACH + SLICE_VECTOR * vectors) * slices
    lies_on_fewer_tiles = slice_mapping.used < default_mapping(op.operands[0], target).used
    sent = slice_mapping.most_bytes * slices if lies_on_fewer_tiles else 0
    name = camel_case(op.name)
    phase = Phase(name, supervisor_cycles(worker, target, SLICE_LAUNCH), float(INDEX_BYTES + sent))
    cost = Cost(
        phases=(phase,) * (1 if _writes_operand(op) else len(axes)),
        vertices=one_vertex_per_tile(f"popops::{name}", part.dtype, slice_mapping.used),
        in_place=_writes_operand(op),
    )
    return _require_layout(f"sliceable{axes}", op, cost, target)


def _require_layout(layout: str, op: Operation, cost: Cost, target: Target) -> Cost:
    """Returns the cost with a layout for the tensor that is read or written."""
    wanted_layout = WantedLayout(default_mapping(op.operands[0], target).used, layout)
    no_layouts = (None,) * (len(op.operands) - 1)
    results = (wanted_layout if _writes_operand(op) else None,)
    return dc.replace(cost, operands=(wanted_layout, *no_layouts), results=results)


def _cost_of_shifted_slice(op: Operation, part: Shape, target: Target) -> Cost:
    """Returns the cost if every tile receives its share of the slice and copies it into place.

    The slice may lie on a few of the tensor's tiles, which then send, or take, all that they hold.
    """
    bytes_received = default_mapping(part, target).most_bytes
    bytes_sent = min(part.bytes, default_mapping(op.operands[0], target).most_bytes)
    copied_bytes = bytes_sent if _writes_operand(op) else bytes_received
    name = camel_case(op.name)
    cycles = COPY_CALL + copied_bytes / COPY_BYTES_PER_CYCLE
    return Cost(
        phases=(Phase(name, cycles, float(INDEX_BYTES + max(bytes_received, bytes_sent))),),
        temporary_bytes=float(copied_bytes),
        vertices=one_vertex_per_tile(
            f"popops::{name}", part.dtype, default_mapping(part, target).used
        ),
        in_place=_writes_operand(op),
    )


@dc.dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a table, some of which are read or written.

    Attributes:
      rows: rows of the table.
      row: elements of one row.
      count: how many indices there are.
      dtype: the type of the elements.
    """

    rows: int
    row: int
    count: int
    dtype: str


@dc.dataclass(frozen=True, slots=True)
class LookupWorker:
    """Worker cycles: start + in range x (each + vector x vectors of a row) + missed x others.

    `width` is how many elements `vector` cycles deal with; 0: as many as `atom` bytes hold.
    """

    start: float
    each: float
    vector: float
    width: int = 0
    atom: int = VECTOR_BYTES
    missed: float = 8.0

    def lookup_cycles(self, hits: float, misses: float, row: int, dtype: str) -> float:
        """Returns the cycles of one worker, for so many indices in range and out of it."""
        elements_per_atom = max(1, self.atom // Shape((), dtype).element_bytes)
        vectors = ceil_div(row, self.width or elements_per_atom)
        return self.start + hits * (self.each + self.vector * vectors) + misses * self.missed


# docs/hardware.md, Other vertices: (vector cycles, elements) (2, 2), for bytes (3, 4).
_WORKERS = {"gather": LookupWorker(30, 19, 2, 2), "scatter": LookupWorker(29, 19, 2, 2)}
_BYTES = (3, 4)
_ADD = LookupWorker(33, 12, 3, atom=4)  # multiUpdateAdd: 33 + 11..12 per index + 3 per 32-bit atom


def _worker_for_dtype(worker: LookupWorker, dtype: str) -> LookupWorker:
    if Shape((), dtype).element_bytes > 1 or not worker.width:
        return worker
    return dc.replace(worker, vector=_BYTES[0], width=_BYTES[1])


def _candidate_splits(limit: int, tiles: int) -> Iterator[int]:
    """Yields powers of two, and the limit itself, up to the number of tiles."""
    yield from (1 << i for i in range(min(limit, tiles).bit_length()))
    if limit <= tiles:
        yield limit


@functools.lru_cache(maxsize=4096)
def plan_lookup(lookup: Lookup, worker: LookupWorker, writes: bool, target: Target) -> Cost:
    """Finds the fastest way to cut a lookup whose temporary memory is within bounds.

    Rows, columns and indices are cut over tiles. Where the fastest cut of all takes more than the
    planner's share of a tile, parts of the indices one after the other are tried beside it. If
    nothing fits, the smallest is taken.
    """
    bound = DEFAULT_PROPORTION * target.bytes_per_tile
    candidates: list[Cost] = []
    repeats, is_settled = 1, False
    while not is_settled:
        part = dc.replace(lookup, count=ceil_div(lookup.count, repeats))
        costs = [
            dc.replace(_cost_of_cut(part, worker, writes, cuts, target), repeats=repeats)
            for cuts in _candidate_cuts(part, target)
        ]
        candidates += costs
        repeats *= 2
        is_settled = fastest_cost(costs, target).temporary_bytes <= bound or part.count <= 1
    fitting = [cost for cost in candidates if cost.temporary_bytes <= bound]
    smallest = min(candidates, key=lambda cost: cost.temporary_bytes)
    return fastest_cost(fitting or [smallest], target)


def _candidate_cuts(lookup: Lookup, target: Target) -> Iterator[tuple[int, int, int]]:
    """Yields the parts of columns, rows and indices, on different tiles."""
    tiles = target.tiles_per_ipu
    for columns in _candidate_splits(ceil_div(lookup.row, vector_width(lookup.dtype)), tiles):
        for rows in _candidate_splits(lookup.rows, tiles // columns):
            for indices in _candidate_splits(lookup.count, tiles // columns // rows):
                yield columns, rows, indices


def _cost_of_cut(
    lookup: Lookup, worker: LookupWorker, writes: bool, cuts: tuple[int, int, int], target: Target
) -> Cost:
    columns, rows, indices = cuts
    size = Shape((), lookup.dtype).element_bytes
    grains = ceil_div(ceil_div(lookup.row, vector_width(lookup.dtype)), columns)
    row_elements = min(lookup.row, grains * vector_width(lookup.dtype))
    indices_per_tile = ceil_div(lookup.count, indices)
    hits = elements_per_worker(ceil_div(indices_per_tile, rows), target)
    misses = elements_per_worker(indices_per_tile, target) - hits
    table = ceil_div(lookup.rows, rows) * row_elements * size
    moved_bytes = indices_per_tile * row_elements * size  # a place for every index, found or not
    compute = supervisor_cycles(
        worker.lookup_cycles(hits, misses, row_elements, lookup.dtype), target
    )
    # Of the table's part: each has a copy, or sums are merged.
    shared_bytes = table * (1 - 1 / indices)
    sent = indices_per_tile * INDEX_BYTES + (moved_bytes if writes else shared_bytes)
    waiting = shared_bytes + moved_bytes if writes else shared_bytes
    phases = [Phase("MultiUpdate" if writes else "MultiSlice", compute, sent)]
    if not writes and rows > 1:  # one of the candidates from every cut of rows
        waiting = moved_bytes + max(shared_bytes, moved_bytes)
        final_indices = ceil_div(indices_per_tile, rows)
        second_cycles = worker.lookup_cycles(
            elements_per_worker(final_indices, target), 0, row_elements, lookup.dtype
        )
        candidates = float(final_indices * rows * row_elements * size)
        phases.append(Phase("MultiSlice", supervisor_cycles(second_cycles, target), candidates))
    if writes and indices > 1:  # each copy's changes, added up where the row lies
        phases.append(Phase("Reduce", table / 8, shared_bytes))
    used = columns * rows * indices
    return Cost(
        phases=tuple(phases),
        temporary_bytes=float(waiting + indices_per_tile * INDEX_BYTES),
        vertices=one_vertex_per_tile(f"popops::{phases[0].name}", lookup.dtype, used),
    )


def row_lookup_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost to read, or to change in place, the rows that the indices name.

    The table lies over all tiles in the plan's order, the same for lookups and updates. Indices of
    groups (`jnp.take_along_axis`) go into tables of their own, each on as many tiles as there are
    for it (popops: groupedMultiSlice).
    """
    table, indices = op.operands[:2]
    accessed_rows = op.operands[2] if _writes_operand(op) else op.first_result
    if not accessed_rows.elements or not table.elements:
        return FREE
    count = max(1, math.prod(indices.dims[:-1]))
    row = max(1, accessed_rows.elements // count)
    groups = _count_groups(op)
    groups_side_by_side = min(groups, target.tiles_per_ipu)
    share = ceil_div(groups, groups_side_by_side) / groups
    rows = table.elements / row
    lookup = Lookup(max(1, math.ceil(rows * share)), row, math.ceil(count * share), table.dtype)
    worker = _worker_for_dtype(_WORKERS.get(op.name, _ADD), table.dtype)
    own_tiles = dc.replace(target, tiles_per_ipu=target.tiles_per_ipu // groups_side_by_side)
    cost = plan_lookup(lookup, worker, _writes_operand(op), own_tiles)
    vertices = (dc.replace(v, tiles=v.tiles * groups_side_by_side) for v in cost.vertices)
    cost = dc.replace(cost, vertices=tuple(vertices))
    cost = _require_layout(f"rows{[lookup.rows, lookup.row]}", op, cost, target)
    return (
        dc.replace(cost, in_place=True, flops=_count_update_flops(op, accessed_rows))
        if _writes_operand(op)
        else cost
    )


def _count_groups(op: Operation) -> int:
    """Returns how many tables of their own the operand is, one for each place along some axes."""
    numbers = op.param("dimension_numbers")
    axes: tuple[int, ...] = getattr(numbers, "operand_batching_dims", ())
    return max(1, math.prod(op.operands[0].dims[axis] for axis in axes))


def _count_update_flops(op: Operation, updates: Shape) -> float:
    """Counts one floating-point operation per element that is combined with a row's."""
    combines = op.name != "scatter" and is_float(updates.dtype)
    return float(updates.elements) if combines else 0.0


_SCATTERS = "scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub"

RULES: dict[str, Rule] = {
    **rules_for_names(dynamic_slice_cost, "dynamic_slice dynamic_update_slice"),
    **rules_for_names(row_lookup_cost, "gather " + _SCATTERS),
}
