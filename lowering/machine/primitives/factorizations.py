"""The cost of QR and its relatives: a Householder vector for every column, and an update with it.

poplin's QR (poplibs: lib/poplin/QRFactorization.cpp) takes one step per column: it makes a
Householder vector, sends it to every tile and updates the rows of A and Q there. So n columns of m
elements take

    fixed + n x (step + reach + rows x element x reach)   cycles,

where rows = ceil((n + m) / tiles) is what the fullest tile updates and reach = (m + 32) / 2 the
mean length of the vectors, which the original shortens every 32 steps; a tile receives its 4-byte
elements at one per cycle. `fixed`, `step` and `element` were fitted once, by least squares of the
relative errors over four of the measurements `qr-poplibs-*` of docs/hardware.md, Measured rows
(Bow, n = m = 32, 64, 512, 1024; the errors left are below 0.1 %; one degree of freedom is left,
too).

Its relatives take the same steps and update other rows: `geqrf` does not form Q,
`householder_product` forms Q alone, `ormqr` turns k vectors, a Hessenberg form is reached by
updates from both sides, and a tridiagonal one by a product and an update of two vectors (LAPACK's
sytrd), three passes where QR's update takes two. Batches of matrices take their steps together.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping

from lowering.machine.cost import SUPERSTEP_CYCLES, Cost, Operation, Phase, Shape
from lowering.machine.primitives.composite import Part
from lowering.machine.primitives.matrices import Matrices, rule_of_algorithm
from lowering.machine.primitives.rule_helpers import (
    FREE,
    Rule,
    camel_case,
    ceil_div,
    one_vertex_per_tile,
)
from lowering.machine.target import Target

FIXED = 83_530.0
STEP = 2_318.0
ELEMENT = 3.238
BLOCK = 32  # poplibs: QRFactorization.cpp getRowsPerIteration

WORKS: Mapping[str, tuple[str, float]] = {
    "geqrf": ("n", 1.0),
    "hessenberg": ("nn", 1.0),
    "householder_product": ("m", 1.0),
    "ormqr": ("k", 1.0),
    "qr": ("mn", 1.0),
    "tridiagonal": ("n", 1.5),
}
"""What every step updates: which extents' rows (m x n is factorized; k right-hand sides), and the
passes over these rows, measured in those of QR, which are two."""


def factorization_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a phase that makes a vector and one that updates, for every column."""
    if not op.operands[0].elements:
        return FREE
    a = Matrices.from_shape(op.operands[0], target).transpose_if_wide
    sides = ceil_div(op.operands[-1].elements, a.batch * a.rows)
    extents = {"m": a.rows, "n": a.columns, "k": sides}
    letters, passes = WORKS[op.name]
    updated_rows = a.batch * sum(extents[letter] for letter in letters)
    return householder_cost(a, camel_case(op.name), updated_rows, passes) if updated_rows else FREE


def householder_cost(a: Matrices, name: str, updated_rows: int, passes: float = 1.0) -> Cost:
    """Returns the cost of Householder steps for tall matrices, which update so many rows."""
    target, size = a.target, Shape((), a.dtype).element_bytes
    rows, mean_length = ceil_div(updated_rows, target.tiles_per_ipu), (a.rows + BLOCK) / 2
    fixed_cycles = 2 * target.sync_cycles + target.exchange_cycles + SUPERSTEP_CYCLES
    step = max(0.0, FIXED / a.columns + STEP - fixed_cycles)
    update = passes * a.real_products_per_element_product * rows * ELEMENT * mean_length
    received = mean_length * size * ceil_div(a.batch, target.tiles_per_ipu)
    used = min(target.tiles_per_ipu, updated_rows)
    return Cost(
        phases=(Phase("Householder", step), Phase("Update", update, received)),
        repeats=a.columns,
        temporary_bytes=mean_length * size * 2,
        vertices=one_vertex_per_tile(f"poplin::experimental::{name}", a.dtype, used),
        flops=4.0
        * passes
        * a.real_products_per_element_product
        * a.columns
        * mean_length
        * updated_rows,
    )


def parts_of_pivoted_qr(matrices: Matrices) -> Iterable[Part]:
    """Returns the parts of QR without Q that takes the longest column first (LAPACK's geqp3)."""
    a = matrices.transpose_if_wide
    n, lengths = a.columns, dc.replace(a, dtype="float32")
    return [
        (1, householder_cost(a, "Geqp3", a.batch * n)),
        (n, lengths.reduction_cost_of_axes("argmax", n)),
        (n, a.move_cost(2, a.rows)),  # columns change places
        (n, lengths.chain_cost("div square sub mul sqrt", n)),
    ]


RULES: dict[str, Rule] = {
    **dict.fromkeys(WORKS, factorization_cost),
    "geqp3": rule_of_algorithm(parts_of_pivoted_qr),
}
