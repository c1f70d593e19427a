"""Hand-written 3x3 stencils (lbm-graphcore: GaussianBlurLowLevel.cpp) on one or several IPUs.

The partitioning is that of its StructuredGridUtils.hpp: strips of rows or columns for the IPUs, a
grid of blocks for the tiles, strips again for the six workers. A step copies every worker's block
with its halo into one buffer, exchanges halos, and calculates. Links, syncs and exchanges are the
model's. Fitted once, over the 9 phases of exchange-vs-compute.csv that are compute or copies:
cycles per vector of values and worker, and those of the copies. Between strips of columns each
pixel of the border is a piece of its own; between strips of rows a tile's share of it is one. What
a piece takes was fitted over nine rows of results.csv with such strips (median; 0.1 to 9 cycles),
and is taken for the columns beside a tile's block, too.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
import re

from lowering.machine.target import Target
from lowering.machine.transfers.links import exchange_cycles, external_sync_cycles, inter_ipu_cycles
from validation.row import Prediction, Row, SkipError

# 9 loads, 8 additions, 3 products and a store are 21 instructions; the rest was fitted.
VECTOR_CYCLES = {"float": 23, "float2": 23, "half4": 28}
VERTEX_CYCLES = 100  # fitted: of a worker, beside its vectors
COPY_CYCLES = 1000  # fitted: of the copies before and after the exchange, beside rows and bytes
COPY_ROW_CYCLES = 17  # fitted: for every row of a worker's block
COPY_BYTES = 5.0  # fitted: bytes per cycle, both copies together
PIECE_CYCLES = 4  # fitted: of each pixel of a border between columns
LANES = {"float": 1, "float2": 2, "half4": 4}
CHANNELS = 4
CHEESE = (2200, 1122)  # the image whose phases exchange-vs-compute.csv has


@dc.dataclass(frozen=True)
class Grid:
    """The largest parts.

    Attributes:
      strip: (rows, columns) of an IPU.
      block: of a tile.
      part: of a worker.
      by_rows: whether IPUs have whole rows.
    """

    strip: tuple[int, int]
    block: tuple[int, int]
    part: tuple[int, int]
    by_rows: bool


def predict(row: Row) -> Prediction | None:
    """Seconds of all steps, or cycles of one phase of one step."""
    phase = re.search(r"phase (\w+)", row.text)
    if "stencil" not in row.text or "popl" in row.text:
        return None
    dtype = str(row.workload.get("dtype", "float"))
    if dtype not in LANES:
        raise SkipError(f"no stencil of {dtype}")
    width, height = _size(row)
    phases = step_phases(width, height, dtype, row.ipus, row.target)
    if phase:
        if phase[1] not in phases:
            raise SkipError(f"unknown phase {phase[1]!r}")
        return Prediction(cycles=phases[phase[1]], assumptions=("the image is 2200x1122",))
    steps, assumed = _steps(row)
    return Prediction(cycles=steps * sum(phases.values()), assumptions=assumed)


def step_phases(width: int, height: int, dtype: str, ipus: int, target: Target) -> dict[str, float]:
    """Cycles of each phase of one step."""
    grid = partition(height, width, ipus, target)
    pixel = CHANNELS * (2 if dtype == "half4" else 4)
    rows, columns = grid.part
    vectors = rows * columns * CHANNELS / LANES[dtype]
    copied_rows = target.workers * (rows + 2)
    halo = 2 * (sum(grid.block) + 2) * pixel
    border = grid.strip[1] if grid.by_rows else grid.strip[0]
    flows = [
        (ipu, other, float(border * pixel))
        for ipu in range(ipus)
        for other in (ipu - 1, ipu + 1)
        if 0 <= other < ipus
    ]
    pieces = border if ipus > 1 and not grid.by_rows else 0
    pieces_of_tile = 2 * grid.block[0]  # the columns left and right of its block
    copied = copied_rows * (columns + 2) * pixel
    copies = COPY_CYCLES + copied_rows * COPY_ROW_CYCLES + copied / COPY_BYTES
    return {
        "compute": target.workers * (vectors * VECTOR_CYCLES[dtype] + VERTEX_CYCLES),
        "pre": copies / 2,
        "post": copies / 2,
        "exchange": exchange_cycles(target, halo) + pieces_of_tile * PIECE_CYCLES,
        "globexchange": inter_ipu_cycles(target, flows) + pieces * PIECE_CYCLES,
        "sync": external_sync_cycles(target, ipus),
    }


def partition(height: int, width: int, ipus: int, target: Target) -> Grid:
    """The largest part of each level, and how a strip is cut."""
    by_rows = height % ipus / height < width % ipus / width
    strip = (-(-height // ipus), width) if by_rows else (height, -(-width // ipus))
    rows, columns = strip
    tiles = target.tiles_per_ipu
    across = min(columns, math.ceil(math.sqrt(tiles * columns / rows)))
    down = max(1, min(rows, tiles // across))
    blocks = itertools.product(
        {rows // down, -(-rows // down)}, {columns // across, -(-columns // across)}
    )
    part = max((_part(block, target.workers) for block in blocks), key=math.prod)
    return Grid(strip, (-(-rows // down), -(-columns // across)), part, by_rows)


def _part(block: tuple[int, int], workers: int) -> tuple[int, int]:
    """The largest of a block's strips, whose direction is the one that divides it more evenly."""
    rows, columns = block
    if rows % workers / rows <= columns % workers / columns:
        return -(-rows // workers), columns
    return rows, -(-columns // workers)


def _size(row: Row) -> tuple[int, int]:
    given = row.workload.get("width_height")
    if isinstance(given, list) and len(given) == 2:
        return int(given[0]), int(given[1])
    found = re.search(r"(\d+)x(\d+) grid", row.text)
    return (int(found[1]), int(found[2])) if found else CHEESE


def _steps(row: Row) -> tuple[int, tuple[str, ...]]:
    found = re.search(r"2n=(\d+)", row.text)
    if found:
        return int(found[1]), ()
    # lbm-graphcore: experiments/should-i-use-all-ipus/output.txt has `-n 1000`, two steps each
    return 2000, ("2000 steps of four float32 channels, as the experiment's output says",)
