"""Hand-written finite differences in float32: heat, diffusion and waves on a mesh, 1 to 16 IPUs.

Two codes divide a mesh alike (simehaa/IPU@674d116, and after it TszwangKo/FYP_IPU_DEVITO@0908800):
slabs of the last axis for the IPUs, a grid of boxes with the smallest surface for the tiles, then
6 strips (2 axes) or 2 by 3 bars (3 axes) for the workers. A step exchanges the boxes' halos and
runs one vertex per worker. Links, syncs and exchanges are the model's. An instruction takes a
worker one of its cycles; they are counted in the source of each vertex. No number was fitted, but
that addresses are loaded again beyond ten rows was concluded from the rows of diffusion.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
import re
from collections.abc import Iterator

import numpy as np

from lowering.machine.target import Target
from lowering.machine.transfers.links import exchange_cycles, external_sync_cycles, inter_ipu_cycles
from validation.row import Prediction, Row, SkipError

BYTES = 4
LOOP = 2  # instructions of a turn beside its arithmetic and memory, as in validation/stencil.py
REGISTERS = 10  # for addresses; with more rows of the mesh, each address is loaded for each point
DIVISION = 4  # instructions for which a division keeps its worker; lowering/machine/primitives
WAVE_STEPS = 1650  # by the rows' own note on 225 points; the spacing and with it the step are fixed


@dc.dataclass(frozen=True)
class Vertex:
    """What one turn of a vertex's inner loop does.

    Attributes:
      reach: the points of the halo on each side.
      loads: of values.
      arithmetic: additions and products.
      divisions: in a turn.
      rows: of the mesh that are read or written, each with an address of its own.
      stores: of results.
      points: that a turn calculates; those left over at either end are calculated one by one.
    """

    reach: int
    loads: int
    arithmetic: int
    rows: int
    divisions: int = 0
    stores: int = 1
    points: int = 1

    @property
    def turn_cycles(self) -> int:
        """Cycles of a worker for one turn."""
        addresses = self.rows if self.rows > REGISTERS else 0
        instructions = self.loads + self.arithmetic + self.stores + addresses + LOOP
        return instructions + self.divisions * DIVISION


PAIRS = Vertex(reach=1, loads=7, arithmetic=9, rows=6, stores=2, points=2)
SCALAR = Vertex(reach=1, loads=7, arithmetic=8, rows=6)
DIFFUSION = {
    2: Vertex(reach=1, loads=7, arithmetic=16, rows=6),
    4: Vertex(reach=2, loads=13, arithmetic=28, rows=10),
    8: Vertex(reach=4, loads=25, arithmetic=46, rows=18),
}
WAVE = Vertex(reach=2, loads=16, arithmetic=28, divisions=2, rows=13)


def predict(row: Row) -> Prediction | None:
    """Cycles of all steps, and the operations that the row counts in them."""
    if not re.search("heat equation|diffusion, space order|acoustic wave", row.text):
        return None
    mesh = row.workload.get("mesh")
    if not (isinstance(mesh, list) and len(mesh) in (2, 3)):
        raise SkipError("the workload has no 'mesh' of two or three sizes")
    vertex, steps, assumed = _program(row)
    if min(mesh) <= 2 * vertex.reach or mesh[-1] - 2 * vertex.reach < row.ipus:
        raise SkipError("the mesh has no points for every IPU")
    step = step_cycles([int(size) for size in mesh], vertex, row.ipus, row.target)
    per_point = float(row.workload.get("flop_per_point_per_iteration", 2 + 2 * len(mesh)))
    points = math.prod(int(size) - 2 for size in mesh)
    return Prediction(cycles=steps * step, flops=steps * points * per_point, assumptions=assumed)


def _program(row: Row) -> tuple[Vertex, int, tuple[str, ...]]:
    order = re.search(r"space order (\d+)", row.text)
    if "wave" in row.text:
        if order and int(order[1]) != 2 * WAVE.reach:
            raise SkipError(f"no wave of space order {order[1]}")
        return WAVE, WAVE_STEPS, (f"{WAVE_STEPS} steps in the {row.workload.get('nt')} ms",)
    steps = int(row.number("iterations"))
    if "diffusion" in row.text:
        if not order or int(order[1]) not in DIFFUSION:
            raise SkipError("no diffusion of this space order")
        return DIFFUSION[int(order[1])], steps, ()
    return SCALAR if "simple" in row.text else PAIRS, steps, ()


def step_cycles(mesh: list[int], vertex: Vertex, ipus: int, target: Target) -> float:
    """Cycles of one step on the largest box."""
    sides = [size - 2 * vertex.reach for size in mesh]
    split = split_box((*sides[:-1], sides[-1] // ipus), target.tiles_per_ipu)
    slab = [*sides[:-1], -(-sides[-1] // ipus)]
    box = [-(-side // parts) for side, parts in zip(slab, split, strict=True)]
    bars = [target.workers] if len(mesh) == 2 else [2, 3]
    rows = math.prod(-(-side // parts) for side, parts in zip(box, bars, strict=False))
    compute = target.workers * rows * _row_cycles(box[-1], vertex)
    faces = sum(math.prod(box) // side for side in box)
    halo = 2 * vertex.reach * faces * BYTES
    border = float(math.prod(mesh[:-1]) * vertex.reach * BYTES)
    flows = [
        (ipu, other, border)
        for ipu in range(ipus)
        for other in (ipu - 1, ipu + 1)
        if 0 <= other < ipus
    ]
    between = inter_ipu_cycles(target, flows)
    sync = external_sync_cycles(target, ipus)
    return compute + exchange_cycles(target, halo) + between + sync


def _row_cycles(points: int, vertex: Vertex) -> int:
    """Cycles of a worker for a row of points along the last axis."""
    if vertex.points == 1:
        return points * vertex.turn_cycles
    turns = -(-points // 2) - 1
    return turns * vertex.turn_cycles + (points - 2 * turns) * SCALAR.turn_cycles


def split_box(sides: tuple[int, ...], tiles: int) -> tuple[int, ...]:
    """The parts of each axis: of all factors of the tiles, the last with the smallest surface.

    With three axes the codes look at the factors in any order, and then use them in theirs.
    """
    best, chosen = math.inf, (tiles,)
    for factors in _factors(tiles, len(sides)):
        orders = itertools.permutations(factors) if len(sides) == 3 else (factors,)
        for order in orders:
            surface = _surface(sides, order)
            if surface <= best:
                best, chosen = surface, factors
    return chosen


def _surface(sides: tuple[int, ...], parts: tuple[int, ...]) -> float:
    """As the codes calculate it: whole sides of two axes, float32 sides of three."""
    if len(sides) == 2:
        return sum(side // count for side, count in zip(sides, parts, strict=True))
    a, b, c = (np.float32(side) / np.float32(n) for side, n in zip(sides, parts, strict=True))
    return float(a * b + c * b + c * a)


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for others in _factors(number // first, count - 1):
                yield (first, *others)
