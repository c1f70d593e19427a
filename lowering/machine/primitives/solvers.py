"""The cost of Cholesky, LU and triangular systems, in blocks: vertices on the diagonal, products.

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
from lowering.machine.primitives.composite import Part, sum_costs
from lowering.machine.primitives.indexing_cost import dynamic_slice_cost
from lowering.machine.primitives.matrices import Matrices, rule_of_algorithm
from lowering.machine.primitives.rates import LOOP_OVERHEAD
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    ceil_div,
    elements_per_worker,
    largest_shape,
    superstep_cost,
    worker_set_cost,
)
from lowering.machine.target import Target
from lowering.machine.transfers.exchange_code import scattered_pieces

BLOCK = 128
"""The width of a block, unless the configuration gives another one."""


def _mean_remainders(extent: int, block: int) -> tuple[int, int, int]:
    """Returns how many blocks have rows behind them, and the mean and root mean square of these."""
    rows_behind = [extent - start for start in range(block, extent, block)]
    if not rows_behind:
        return 0, 0, 0
    square = math.sqrt(sum(rows * rows for rows in rows_behind) / len(rows_behind))
    return len(rows_behind), math.ceil(sum(rows_behind) / len(rows_behind)), math.ceil(square)


def _cost_of_block(a: Matrices, name: str, cycles: float, block: int) -> Cost:
    """Returns the cost of a block of each matrix on a tile of its own."""
    tiles = a.target.tiles_per_ipu
    turns = ceil_div(a.batch, tiles)
    received = float(turns * block * block * Shape((), a.dtype).element_bytes)
    used, flops = min(a.batch, tiles), float(a.batch * block**3) / 3
    compute = turns * a.real_products_per_element_product * cycles
    cost = superstep_cost(f"poplin::{name}", (a.dtype, used), compute, received, flops)
    rows = scattered_pieces(turns * block, 1)  # each row of a block lies by itself
    phases = (dc.replace(phase, receivers=used, pieces=rows) for phase in cost.phases)
    return dc.replace(cost, phases=tuple(phases))


def parts_of_cholesky(a: Matrices, block: int = BLOCK) -> list[Part]:
    """Returns the parts of Cholesky: blocks on the diagonal, products below and behind them."""
    n, d = a.rows, min(a.rows, block)
    diagonal = d**3 + 102 * d**2 + 101 * d + 102
    parts = [(ceil_div(n, d), _cost_of_block(a, "Cholesky", diagonal, d))]
    behind, panel, square = _mean_remainders(n, d)
    if behind:
        inverse = 6 * (6 * d * d / 2) + 264 * d  # 6 d^3 + 264 d^2 of d columns, six at a time
        parts += [
            (behind, _cost_of_block(a, "TriangularInverse", inverse, d)),
            (behind, a.matmul_cost(panel, d, d)),
            (behind, a.matmul_cost(square, d, square)),
            (behind, a.chain_cost("sub", square, square)),
        ]
    return [*parts, (1, a.chain_cost("select_n", n, n))]


def cholesky_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of Cholesky's factors in blocks, each with code of its own."""
    matrix, block = op.operands[0], op.param("block", BLOCK)
    if not matrix.elements:
        return FREE
    return sum_costs(parts_of_cholesky(Matrices.from_shape(matrix, target), block), unrolled=True)


def triangular_solve_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of blocks one after the other, and a product between two halves."""
    matrix, sides = op.operands[0], op.operands[-1]
    if not matrix.elements or not sides.elements:
        return FREE
    a = Matrices.from_shape(matrix, target)
    k = ceil_div(sides.elements, a.batch * a.rows)
    unit, block = bool(op.param("unit_diagonal", False)), op.param("block", BLOCK)
    return sum_costs(parts_of_triangular_solve(a, k, unit, block))


def parts_of_triangular_solve(
    a: Matrices, k: int, unit: bool = False, block: int = BLOCK
) -> list[Part]:
    """Returns the parts of the solution of triangular systems with k sides each."""
    n, d = a.rows, min(a.rows, block)
    parts = [] if unit else [(1, a.chain_cost("div", n, columns)) for columns in (n, k)]
    parts.append((ceil_div(n, d), _cost_of_substitution(a, d, k)))
    half = d
    while half < n:
        squares = ceil_div(n, 2 * half)
        parts += [(squares, a.matmul_cost(half, half, k)), (squares, a.chain_cost("sub", half, k))]
        half *= 2
    return parts


def _cost_of_substitution(a: Matrices, block: int, sides_per_system: int) -> Cost:
    """Returns the cost of a block with its sides; every worker takes one at a time."""
    tiles, systems = a.target.tiles_per_ipu, a.batch * sides_per_system
    sides = ceil_div(systems, tiles)
    cycles = (
        elements_per_worker(sides, a.target)
        * a.real_products_per_element_product
        * (1.5 * block * block + 180 * block - 126)
    )
    received = float((block * block + sides * block) * Shape((), a.dtype).element_bytes)
    dtype_and_tiles, flops = (a.dtype, min(systems, tiles)), float(systems * block * block)
    return superstep_cost(
        "poplin::TriangularSolve", dtype_and_tiles, max(0.0, cycles), received, flops
    )


def parts_of_lu(a: Matrices) -> list[Part]:
    """Returns the parts of LU: panels of columns, then a triangular system and a product."""
    m, n = a.rows, a.columns
    steps = min(m, n)
    d, rows = min(steps, BLOCK), max(1, m - steps // 2)
    parts = [
        (steps, a.chain_cost("abs select_n", rows)),
        (steps, a.reduction_cost_of_axes("argmax", rows)),
        (steps, a.move_cost(2, d)),  # rows change places
        (steps, a.chain_cost("div select_n", rows)),
        (steps, a.chain_cost("mul select_n sub", rows, d)),
    ]
    columns_behind = [n - end for end in range(d, steps + d, d) if end < n]
    if columns_behind:
        panels, behind = len(columns_behind), math.ceil(sum(columns_behind) / len(columns_behind))
        parts += [
            (panels, a.move_cost(rows, behind)),
            (
                panels,
                sum_costs(parts_of_triangular_solve(dc.replace(a, rows=d), behind, unit=True)),
            ),
            (panels, a.matmul_cost(rows, d, behind)),
            (panels, a.chain_cost("sub", rows, behind)),
        ]
    return parts


def pivot_permutation_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of swaps one by one: two elements are read, and two written."""
    swaps, result = op.operands[0], largest_shape(op.results)
    if not result.elements or not result.dims or not swaps.elements:
        return FREE
    batch = math.prod(swaps.dims[:-1])
    array, element = Shape((batch, result.dims[-1]), "int32"), Shape((batch, 1), "int32")
    read = dynamic_slice_cost(Operation("dynamic_slice", (array,), (element,)), target)
    write = dynamic_slice_cost(
        Operation("dynamic_update_slice", (array, element), (array,)), target
    )
    times = swaps.dims[-1] if swaps.dims else 1
    return sum_costs([(3 * times, read), (2 * times, write)])


def parts_of_cholesky_update(a: Matrices) -> list[Part]:
    """Returns the parts of a Cholesky update: a rotation of every column with the added one."""
    return [
        (a.rows, a.chain_cost("abs square square add sqrt div div", 1)),
        (a.rows, a.chain_cost("mul mul add mul mul sub select_n", a.rows)),
    ]


def parts_of_symmetric_product(a: Matrices) -> list[Part]:
    """Returns the parts of alpha A A^T + beta C: a product and two operations on its result."""
    n = a.rows
    return [(1, a.matmul_cost(n, a.columns, n)), (1, a.chain_cost("mul mul add", n, n))]


# Thomas' algorithm without vectors, forward and back: cycles of single floats (`rates`).
_DIVISION, _PRODUCT = 10, 3
FORWARD = 2 * _DIVISION + 4 * _PRODUCT + LOOP_OVERHEAD
BACK = 2 * _PRODUCT + LOOP_OVERHEAD


def tridiagonal_solve_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of Thomas' algorithm, the systems side by side on the workers."""
    diagonal, sides = op.operands[0], largest_shape(op.operands)
    if not sides.elements or not diagonal.dims:
        return FREE
    length = diagonal.dims[-1]
    systems = ceil_div(sides.elements, length)
    systems_per_worker = elements_per_worker(ceil_div(systems, target.tiles_per_ipu), target)
    worker = (
        29
        + length
        * systems_per_worker
        * (FORWARD + BACK)
        * Matrices.from_shape(sides, target).real_products_per_element_product
    )
    return worker_set_cost(op, target, sides, worker, library="poplin")


RULES: dict[str, Rule] = {
    "cholesky": cholesky_cost,
    "cholesky_update": rule_of_algorithm(parts_of_cholesky_update),
    "lu": rule_of_algorithm(parts_of_lu),
    "lu_pivots_to_permutation": pivot_permutation_cost,
    "symmetric_product": rule_of_algorithm(parts_of_symmetric_product),
    "triangular_solve": triangular_solve_cost,
    "tridiagonal_solve": tridiagonal_solve_cost,
}
