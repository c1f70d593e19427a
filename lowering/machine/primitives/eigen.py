"""The cost of eigenvalue and singular value decompositions.

* `eigh` is XLA's EighExpander, which the original ran, too: Jacobi's rotations of n / 2 pairs at a
  time, n - 1 rounds a sweep, each of which turns rows and columns of the matrix and columns of the
  vectors, and moves all three for the next pairs. Sweeps until float32 stands still were counted on
  random matrices of 4 to 256 (5 for 16, 6 for 64, 7 for 256): 3 + log2(n) / 2.
* `svd` is JAX's for machines with units for products (jax/_src/tpu/linalg): a polar decomposition
  by dynamically weighted Halley iterations, two of them with a QR factorization and four with
  Cholesky's, and `eigh` of the remaining symmetric part.
* `schur` is LAPACK's (gees): Hessenberg's form, its vectors, and the double-shift QR algorithm,
  which takes two iterations for an eigenvalue and a step for each row that is not deflated yet, so
  n^2 steps of reflections of three rows and columns. `eig` solves a triangular system for the
  vectors on top of that, and multiplies them back.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Operation, Shape
from lowering.machine.primitives.composite import Part
from lowering.machine.primitives.factorizations import householder_cost
from lowering.machine.primitives.matrices import Matrices, rule_of_algorithm
from lowering.machine.primitives.rule_helpers import Rule
from lowering.machine.primitives.solvers import parts_of_cholesky, parts_of_triangular_solve
from lowering.machine.primitives.sorting import sort_cost

QR_ITERATIONS = 2
CHOLESKY_ITERATIONS = 4

_ANGLE = "sub div square add sqrt add inverse select_n"
_ROTATION = "square add rsqrt mul select_n"
_TURN = "mul mul sub"
_REFLECTOR = "square add sqrt add div mul"
_REFLECTION = "mul add mul sub"


def count_jacobi_sweeps(n: int) -> int:
    """Returns the sweeps of Jacobi's rotations until nothing changes."""
    return 3 + math.ceil(math.log2(max(2, n)) / 2)


def parts_of_eigh(a: Matrices) -> list[Part]:
    """Returns the parts of `eigh`: sweeps of rotations, and the values in order."""
    n, pairs = a.rows, max(1, a.rows // 2)
    num_sweeps = count_jacobi_sweeps(n)
    rounds = num_sweeps * max(1, n - 1)
    values = Shape((a.batch, n), "float32")
    order = Operation("sort", (values, values), (values, values), (("dimension", 1),))
    return [
        (rounds, a.chain_cost(_ANGLE, pairs)),
        (rounds, a.chain_cost(_ROTATION, pairs)),
        (3 * rounds, a.chain_cost(_TURN, n, n)),
        (3 * rounds, a.move_cost(n, n)),
        (num_sweeps, a.chain_cost("square", n, n)),
        (num_sweeps, a.reduction_cost_of_axes("reduce_sum", n, n)),
        (1, sort_cost(order, a.target)),
        (1, a.move_cost(n, n)),
    ]


def parts_of_svd(matrices: Matrices) -> list[Part]:
    """Returns the parts of `svd`: a polar decomposition, and `eigh` of its symmetric factor."""
    a = matrices.transpose_if_wide
    m, n = a.rows, a.columns
    stacked, square = dc.replace(a, rows=m + n), dc.replace(a, rows=n)
    by_cholesky = [
        (1, a.matmul_cost(n, m, n)),
        *parts_of_cholesky(square),
        *parts_of_triangular_solve(square, m),
        *parts_of_triangular_solve(square, m),
    ]
    return [
        (QR_ITERATIONS, householder_cost(stacked, "Qr", a.batch * (m + n + n))),
        (QR_ITERATIONS, a.matmul_cost(m, n, n)),
        *((CHOLESKY_ITERATIONS * times, cost) for times, cost in by_cholesky),
        (QR_ITERATIONS + CHOLESKY_ITERATIONS, a.chain_cost("mul mul add", m, n)),
        (1, a.matmul_cost(n, m, n)),
        (1, a.chain_cost("add mul", n, n)),
        *parts_of_eigh(square),
        (1, a.matmul_cost(m, n, n)),
    ]


def parts_of_schur(a: Matrices) -> list[Part]:
    """Returns the parts of `schur`: Hessenberg's form, and steps down its diagonal."""
    n = a.rows
    steps = n * n
    return [
        (1, householder_cost(a, "Hessenberg", 2 * a.batch * n)),
        (1, householder_cost(a, "HouseholderProduct", a.batch * n)),
        (steps, a.chain_cost(_REFLECTOR, 3)),
        (steps, a.move_cost(3)),
        # Rows and columns of the form, and columns of the vectors; three each.
        (steps, a.chain_cost(_REFLECTION, 3, 3 * n)),
    ]


def parts_of_eig(a: Matrices) -> list[Part]:
    """Returns the parts of `eig`: Schur's form, a triangular system, a product."""
    n, vectors = a.rows, dc.replace(a, dtype="complex64")
    return [
        *parts_of_schur(a),
        *parts_of_triangular_solve(vectors, n),
        (1, vectors.matmul_cost(n, n, n)),
        (1, vectors.chain_cost("square", n, n)),
        (1, vectors.reduction_cost_of_axes("reduce_sum", n, n, kept_axes=1)),
        (1, vectors.chain_cost("mul", n, n)),
    ]


RULES: dict[str, Rule] = {
    "eig": rule_of_algorithm(parts_of_eig),
    "eigh": rule_of_algorithm(parts_of_eigh),
    "schur": rule_of_algorithm(parts_of_schur),
    "svd": rule_of_algorithm(parts_of_svd),
}
