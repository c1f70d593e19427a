"""Eigenvalues and singular values.

* `eigh` is XLA's EighExpander, which the original ran, too: Jacobi's rotations of n / 2 pairs at a
  time, n - 1 rounds a sweep, each of which turns rows and columns of the matrix and columns of the
  vectors, and moves all three for the next pairs. Sweeps until float32 stands still were counted on
  random matrices of 4 to 256 (5 for 16, 6 for 64, 7 for 256): 3 + log2(n) / 2.
* `svd` is JAX's for machines with units for products (jax/_src/tpu/linalg): a polar decomposition
  by dynamically weighted Halley iterations, two of them with a QR factorization and four with
  Cholesky's, and `eigh` of what is left.
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
from lowering.machine.primitives.factorizations import householder
from lowering.machine.primitives.matrices import Matrices, by_parts
from lowering.machine.primitives.solvers import cholesky, triangular
from lowering.machine.primitives.sorting import sort
from lowering.machine.primitives.vertices import Rule

QR_ITERATIONS = 2
CHOLESKY_ITERATIONS = 4

_ANGLE = "sub div square add sqrt add inverse select_n"
_ROTATION = "square add rsqrt mul select_n"
_TURN = "mul mul sub"
_REFLECTOR = "square add sqrt add div mul"
_REFLECTION = "mul add mul sub"


def sweeps(n: int) -> int:
    """Of Jacobi's rotations until nothing changes."""
    return 3 + math.ceil(math.log2(max(2, n)) / 2)


def eigh(a: Matrices) -> list[Part]:
    """Sweeps of rotations, and the values in order."""
    n, pairs = a.rows, max(1, a.rows // 2)
    every = sweeps(n)
    rounds = every * max(1, n - 1)
    values = Shape((a.batch, n), "float32")
    order = Operation("sort", (values, values), (values, values), (("dimension", 1),))
    return [
        (rounds, a.chain(_ANGLE, pairs)),
        (rounds, a.chain(_ROTATION, pairs)),
        (3 * rounds, a.chain(_TURN, n, n)),
        (3 * rounds, a.moved(n, n)),
        (every, a.chain("square", n, n)),
        (every, a.reduced("reduce_sum", n, n)),
        (1, sort(order, a.target)),
        (1, a.moved(n, n)),
    ]


def svd(matrices: Matrices) -> list[Part]:
    """A polar decomposition, and the eigenvalues of its symmetric part."""
    a = matrices.tall
    m, n = a.rows, a.columns
    stacked, square = dc.replace(a, rows=m + n), dc.replace(a, rows=n)
    by_cholesky = [
        (1, a.product(n, m, n)),
        *cholesky(square),
        *triangular(square, m),
        *triangular(square, m),
    ]
    return [
        (QR_ITERATIONS, householder(stacked, "Qr", a.batch * (m + n + n))),
        (QR_ITERATIONS, a.product(m, n, n)),
        *((CHOLESKY_ITERATIONS * times, cost) for times, cost in by_cholesky),
        (QR_ITERATIONS + CHOLESKY_ITERATIONS, a.chain("mul mul add", m, n)),
        (1, a.product(n, m, n)),
        (1, a.chain("add mul", n, n)),
        *eigh(square),
        (1, a.product(m, n, n)),
    ]


def schur(a: Matrices) -> list[Part]:
    """Hessenberg's form, and steps down its diagonal."""
    n = a.rows
    steps = n * n
    return [
        (1, householder(a, "Hessenberg", 2 * a.batch * n)),
        (1, householder(a, "HouseholderProduct", a.batch * n)),
        (steps, a.chain(_REFLECTOR, 3)),
        (steps, a.moved(3)),
        # Rows and columns of the form, and columns of the vectors; three each.
        (steps, a.chain(_REFLECTION, 3, 3 * n)),
    ]


def eig(a: Matrices) -> list[Part]:
    """Schur's form, a triangular system for the vectors, and their product with the basis."""
    n, vectors = a.rows, dc.replace(a, dtype="complex64")
    return [
        *schur(a),
        *triangular(vectors, n),
        (1, vectors.product(n, n, n)),
        (1, vectors.chain("square", n, n)),
        (1, vectors.reduced("reduce_sum", n, n, kept=1)),
        (1, vectors.chain("mul", n, n)),
    ]


RULES: dict[str, Rule] = {
    "eig": by_parts(eig),
    "eigh": by_parts(eigh),
    "schur": by_parts(schur),
    "svd": by_parts(svd),
}
