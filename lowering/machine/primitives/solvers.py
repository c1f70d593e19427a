"""Cholesky, LU and triangular systems, in blocks: vertices on the diagonal, products beside it.

The original's blocks are 128 wide, as XLA's (tensorflow: `triangular_solve_expander_block_size` and
`cholesky_block_size` of 0), each on one tile. With N rows there is code for the N / size blocks of
a Cholesky factor, and for the log2(N / size) sizes of squares of a triangular system.

* Cholesky (poplibs: lib/poplin/Cholesky.cpp): a block is factorized, its inverse multiplied with
  the panel below, and the product of that with itself taken from what is left.
* Triangular systems (poplibs: lib/poplin/TriangularSolve.cpp): rows are scaled by the diagonal and
  halved down to blocks, each half's solution multiplied with the square between the two.
* LU (jax/_src/lax/linalg.py, `_lu_blocked`; poplin's has no pivots): the columns of a panel one
  after the other, each with a search for its pivot, an exchange of rows and an update of the
  panel; then a triangular system and a product for what is left.

Cycles of the vertices on one tile are those of poplibs' lib/poplin/poplinCycleEstimators.cpp for
floats. The inverse's columns are shared out among the six workers of as many tiles as it takes.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.composite import Part, assembled
from lowering.machine.primitives.indexing import dynamic_slice
from lowering.machine.primitives.matrices import Matrices, by_parts
from lowering.machine.primitives.rates import LOOP_OVERHEAD
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    by_workers,
    ceil_div,
    largest,
    on_worker,
    superstep,
)
from lowering.machine.target import Target

BLOCK = 128
"""Where the configuration does not say another one."""


def _means(extent: int, block: int) -> tuple[int, int, int]:
    """Blocks that have something behind them, and the mean and mean square root of what that is."""
    left = [extent - start for start in range(block, extent, block)]
    if not left:
        return 0, 0, 0
    square = math.sqrt(sum(rows * rows for rows in left) / len(left))
    return len(left), math.ceil(sum(left) / len(left)), math.ceil(square)


def _on_a_tile(a: Matrices, name: str, cycles: float, block: int) -> Cost:
    """A block of each matrix on a tile of its own."""
    tiles = a.target.tiles_per_ipu
    turns = ceil_div(a.batch, tiles)
    received = float(turns * block * block * Shape((), a.dtype).element_bytes)
    used, flops = min(a.batch, tiles), float(a.batch * block**3) / 3
    compute = turns * a.products * cycles
    cost = superstep(f"poplin::{name}", (a.dtype, used), compute, received, flops)
    return dc.replace(cost, phases=tuple(dc.replace(p, receivers=used) for p in cost.phases))


def cholesky(a: Matrices, block: int = BLOCK) -> list[Part]:
    """Blocks along the diagonal, and products for what is below and behind them."""
    n, d = a.rows, min(a.rows, block)
    diagonal = d**3 + 102 * d**2 + 101 * d + 102
    parts = [(ceil_div(n, d), _on_a_tile(a, "Cholesky", diagonal, d))]
    behind, panel, square = _means(n, d)
    if behind:
        inverse = 6 * (6 * d * d / 2) + 264 * d  # 6 d^3 + 264 d^2 of d columns, six at a time
        parts += [
            (behind, _on_a_tile(a, "TriangularInverse", inverse, d)),
            (behind, a.product(panel, d, d)),
            (behind, a.product(square, d, square)),
            (behind, a.chain("sub", square, square)),
        ]
    return [*parts, (1, a.chain("select_n", n, n))]


def factorized(op: Operation, target: Target) -> Cost:
    """Cholesky's factors, in blocks as wide as the operation says; each has code of its own."""
    matrix, block = op.operands[0], op.param("block", BLOCK)
    if not matrix.elements:
        return FREE
    return assembled(cholesky(Matrices.of(matrix, target), block), unrolled=True)


def triangular_solve(op: Operation, target: Target) -> Cost:
    """Blocks one after the other, and a product for every square between two halves."""
    matrix, sides = op.operands[0], op.operands[-1]
    if not matrix.elements or not sides.elements:
        return FREE
    a = Matrices.of(matrix, target)
    k = ceil_div(sides.elements, a.batch * a.rows)
    unit, block = bool(op.param("unit_diagonal", False)), op.param("block", BLOCK)
    return assembled(triangular(a, k, unit, block))


def triangular(a: Matrices, k: int, unit: bool = False, block: int = BLOCK) -> list[Part]:
    """The solution of triangular systems with k sides each."""
    n, d = a.rows, min(a.rows, block)
    parts = [] if unit else [(1, a.chain("div", n, columns)) for columns in (n, k)]
    parts.append((ceil_div(n, d), _substituted(a, d, k)))
    half = d
    while half < n:
        squares = ceil_div(n, 2 * half)
        parts += [(squares, a.product(half, half, k)), (squares, a.chain("sub", half, k))]
        half *= 2
    return parts


def _substituted(a: Matrices, d: int, k: int) -> Cost:
    """A block with its sides; every worker takes one at a time."""
    tiles, systems = a.target.tiles_per_ipu, a.batch * k
    sides = ceil_div(systems, tiles)
    cycles = on_worker(sides, a.target) * a.products * (1.5 * d * d + 180 * d - 126)
    received = float((d * d + sides * d) * Shape((), a.dtype).element_bytes)
    on, flops = (a.dtype, min(systems, tiles)), float(systems * d * d)
    return superstep("poplin::TriangularSolve", on, max(0.0, cycles), received, flops)


def lu(a: Matrices) -> list[Part]:
    """Panels of columns, and a triangular system and a product for what is behind them."""
    m, n = a.rows, a.columns
    steps = min(m, n)
    d, rows = min(steps, BLOCK), max(1, m - steps // 2)
    parts = [
        (steps, a.chain("abs select_n", rows)),
        (steps, a.reduced("argmax", rows)),
        (steps, a.moved(2, d)),  # rows change places
        (steps, a.chain("div select_n", rows)),
        (steps, a.chain("mul select_n sub", rows, d)),
    ]
    left = [n - end for end in range(d, steps + d, d) if end < n]
    if left:
        panels, behind = len(left), math.ceil(sum(left) / len(left))
        parts += [
            (panels, a.moved(rows, behind)),
            (panels, assembled(triangular(dc.replace(a, rows=d), behind, unit=True))),
            (panels, a.product(rows, d, behind)),
            (panels, a.chain("sub", rows, behind)),
        ]
    return parts


def permutation(op: Operation, target: Target) -> Cost:
    """One swap after the other: two elements are read, and two written."""
    swaps, result = op.operands[0], largest(op.results)
    if not result.elements or not result.dims or not swaps.elements:
        return FREE
    batch = math.prod(swaps.dims[:-1])
    whole, one = Shape((batch, result.dims[-1]), "int32"), Shape((batch, 1), "int32")
    read = dynamic_slice(Operation("dynamic_slice", (whole,), (one,)), target)
    write = dynamic_slice(Operation("dynamic_update_slice", (whole, one), (whole,)), target)
    times = swaps.dims[-1] if swaps.dims else 1
    return assembled([(3 * times, read), (2 * times, write)])


def rotated(a: Matrices) -> list[Part]:
    """Cholesky's factor after an update: a rotation of every column with what is added."""
    return [
        (a.rows, a.chain("abs square square add sqrt div div", 1)),
        (a.rows, a.chain("mul mul add mul mul sub select_n", a.rows)),
    ]


def symmetric_product(a: Matrices) -> list[Part]:
    """Alpha A A^T + beta C, as a product and two operations on its result."""
    n = a.rows
    return [(1, a.product(n, a.columns, n)), (1, a.chain("mul mul add", n, n))]


# Thomas' algorithm without vectors, forward and back: cycles of single floats (`rates`).
_DIVISION, _PRODUCT = 10, 3
FORWARD = 2 * _DIVISION + 4 * _PRODUCT + LOOP_OVERHEAD
BACK = 2 * _PRODUCT + LOOP_OVERHEAD


def tridiagonal_solve(op: Operation, target: Target) -> Cost:
    """Forward and back along the diagonal, the systems side by side on the workers."""
    diagonal, sides = op.operands[0], largest(op.operands)
    if not sides.elements or not diagonal.dims:
        return FREE
    length = diagonal.dims[-1]
    systems = ceil_div(sides.elements, length)
    mine = on_worker(ceil_div(systems, target.tiles_per_ipu), target)
    worker = 29 + length * mine * (FORWARD + BACK) * Matrices.of(sides, target).products
    return by_workers(op, target, sides, worker, library="poplin")


RULES: dict[str, Rule] = {
    "cholesky": factorized,
    "cholesky_update": by_parts(rotated),
    "lu": by_parts(lu),
    "lu_pivots_to_permutation": permutation,
    "symmetric_product": by_parts(symmetric_product),
    "triangular_solve": triangular_solve,
    "tridiagonal_solve": tridiagonal_solve,
}
