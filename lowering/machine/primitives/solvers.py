"""Cholesky, LU and triangular systems, in blocks: vertices on the diagonal, products beside it.

The original's blocks are 128 wide, as XLA's (tensorflow: `triangular_solve_expander_block_size` and
`cholesky_block_size` of 0), each on one tile.

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

import math

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.primitives.composite import Part, assembled, chain, matrices, moved, product
from lowering.machine.primitives.factorizations import COMPLEX_PRODUCTS, extents
from lowering.machine.primitives.indexing import dynamic_slice
from lowering.machine.primitives.rates import LOOP_OVERHEAD
from lowering.machine.primitives.reductions import reduction
from lowering.machine.primitives.vertices import (
    FREE,
    Rule,
    by_workers,
    ceil_div,
    largest,
    on_worker,
    vertex,
)
from lowering.machine.target import Target

BLOCK = 128


def _means(extent: int, block: int) -> tuple[int, int, int]:
    """Blocks that have something behind them, and the mean and mean square root of what that is."""
    left = [extent - start for start in range(block, extent, block)]
    if not left:
        return 0, 0, 0
    square = math.sqrt(sum(rows * rows for rows in left) / len(left))
    return len(left), math.ceil(sum(left) / len(left)), math.ceil(square)


def _factor(dtype: str) -> int:
    return COMPLEX_PRODUCTS if dtype.startswith("complex") else 1


def _on_a_tile(
    name: str, cycles: float, block: int, batch: int, dtype: str, target: Target
) -> Cost:
    """A block of each matrix on a tile of its own."""
    turns = ceil_div(batch, target.tiles_per_ipu)
    received = float(turns * block * block * Shape((), dtype).element_bytes)
    return Cost(
        phases=(Phase(name, turns * _factor(dtype) * cycles, received),),
        temporary_bytes=received,
        vertices=vertex(f"poplin::{name}", dtype, min(batch, target.tiles_per_ipu)),
        flops=float(batch * block**3) / 3,
    )


def cholesky(op: Operation, target: Target) -> Cost:
    """Blocks along the diagonal, and products for what is below and behind them."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, n, _, _ = extents(op)
    return assembled(cholesky_parts(batch, n, matrix.dtype, target))


def cholesky_parts(batch: int, n: int, dtype: str, target: Target) -> list[Part]:
    """The parts of Cholesky's factorization of n x n matrices."""
    d = min(n, BLOCK)
    found = [(ceil_div(n, d), _diagonal(d, batch, dtype, target))]
    behind, panel, square = _means(n, d)
    if behind:
        inverse = 6 * (6 * d * d / 2) + 264 * d  # 6 d^3 + 264 d^2 of d columns, six at a time
        found += [
            (behind, _on_a_tile("TriangularInverse", inverse, d, batch, dtype, target)),
            (behind, product(batch, panel, d, d, dtype, target)),
            (behind, product(batch, square, d, square, dtype, target)),
            (behind, chain(("sub",), Shape((batch, square, square), dtype), target)),
        ]
    return [*found, (1, chain(("select_n",), Shape((batch, n, n), dtype), target))]


def _diagonal(d: int, batch: int, dtype: str, target: Target) -> Cost:
    cycles = d**3 + 102 * d**2 + 101 * d + 102
    return _on_a_tile("Cholesky", cycles, d, batch, dtype, target)


def triangular_solve(op: Operation, target: Target) -> Cost:
    """Blocks one after the other, and a product for every square between two halves."""
    matrix, sides = op.operands[0], op.operands[-1]
    if not matrix.elements or not sides.elements:
        return FREE
    batch, n, _, _ = extents(op)
    k = ceil_div(sides.elements, max(1, batch * n))
    unit = bool(op.param("unit_diagonal", False))
    return assembled(triangular_parts(batch, n, k, matrix.dtype, target, unit))


def triangular_parts(
    batch: int, n: int, k: int, dtype: str, target: Target, unit: bool = False
) -> list[Part]:
    """The parts of the solution of n x n triangular systems with k sides each."""
    found: list[Part] = []
    if not unit:
        found += [
            (1, chain(("div",), Shape((batch, rows, columns), dtype), target))
            for rows, columns in ((n, n), (n, k))
        ]
    d = min(n, BLOCK)
    found.append((ceil_div(n, d), _substituted(d, batch, k, dtype, target)))
    half = d
    while half < n:
        squares = ceil_div(n, 2 * half)
        found += [
            (squares, product(batch, half, half, k, dtype, target)),
            (squares, chain(("sub",), Shape((batch, half, k), dtype), target)),
        ]
        half *= 2
    return found


def _substituted(d: int, batch: int, k: int, dtype: str, target: Target) -> Cost:
    """A block with its sides; every worker takes one at a time."""
    sides = ceil_div(batch * k, target.tiles_per_ipu)
    turns = on_worker(sides, target)
    cycles = turns * _factor(dtype) * (1.5 * d * d + 180 * d - 126)
    received = (d * d + sides * d) * Shape((), dtype).element_bytes
    return Cost(
        phases=(Phase("TriangularSolve", max(0.0, cycles), float(received)),),
        temporary_bytes=float(received),
        vertices=vertex("poplin::TriangularSolve", dtype, min(batch * k, target.tiles_per_ipu)),
        flops=float(batch * k * d * d),
    )


def lu(op: Operation, target: Target) -> Cost:
    """Panels of columns, and a triangular system and a product for what is behind them."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    (batch, m, n), dtype = matrices(matrix), matrix.dtype
    steps = min(m, n)
    d = min(steps, BLOCK)
    rows = max(1, m - steps // 2)
    column, panel = Shape((batch, rows), dtype), Shape((batch, rows, d), dtype)
    pivot = Operation("argmax", (column,), (Shape((batch,), "int32"),), (("axes", (1,)),))
    found: list[Part] = [
        (steps, chain(("abs", "select_n"), column, target)),
        (steps, reduction(pivot, target)),
        (steps, moved(Shape((batch, 2, d), dtype), target)),  # rows change places
        (steps, chain(("div", "select_n"), column, target)),
        (steps, chain(("mul", "select_n", "sub"), panel, target)),
    ]
    left = [n - end for end in range(d, steps + d, d) if end < n]
    if left:
        behind = math.ceil(sum(left) / len(left))
        rest = Shape((batch, rows, behind), dtype)
        solved = assembled(triangular_parts(batch, d, behind, dtype, target, unit=True))
        found += [
            (len(left), moved(rest, target)),
            (len(left), solved),
            (len(left), product(batch, rows, d, behind, dtype, target)),
            (len(left), chain(("sub",), rest, target)),
        ]
    return assembled(found)


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


def rotated(op: Operation, target: Target) -> Cost:
    """Cholesky's factor after an update: a rotation of every column with what is added."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, n, _, _ = extents(op)
    names = ("mul", "mul", "add", "mul", "mul", "sub", "select_n")
    column, one = Shape((batch, n), matrix.dtype), Shape((batch, 1), matrix.dtype)
    rotation = chain(("abs", "square", "square", "add", "sqrt", "div", "div"), one, target)
    return assembled([(n, rotation), (n, chain(names, column, target))])


def symmetric_product(op: Operation, target: Target) -> Cost:
    """Alpha A A^T + beta C, as a product and two operations on its result."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    (batch, n, k), dtype = matrices(matrix), matrix.dtype
    result = Shape((batch, n, n), dtype)
    return assembled(
        [
            (1, product(batch, n, k, n, dtype, target)),
            (1, chain(("mul", "mul", "add"), result, target)),
        ]
    )


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
    worker = 29 + length * mine * (FORWARD + BACK) * _factor(sides.dtype)
    return by_workers(op, target, sides, worker, library="poplin")


RULES: dict[str, Rule] = {
    "cholesky": cholesky,
    "cholesky_update": rotated,
    "lu": lu,
    "lu_pivots_to_permutation": permutation,
    "symmetric_product": symmetric_product,
    "triangular_solve": triangular_solve,
    "tridiagonal_solve": tridiagonal_solve,
}
