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

import math

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.composite import Part, assembled, chain, moved, product
from lowering.machine.primitives.factorizations import extents, householder
from lowering.machine.primitives.reductions import reduction
from lowering.machine.primitives.solvers import cholesky_parts, triangular_parts
from lowering.machine.primitives.sorting import sort
from lowering.machine.primitives.vertices import FREE, Rule
from lowering.machine.target import Target

QR_ITERATIONS = 2
CHOLESKY_ITERATIONS = 4

_ANGLE = ("sub", "div", "square", "add", "sqrt", "add", "inverse", "select_n")
_ROTATION = ("square", "add", "rsqrt", "mul", "select_n")
_TURN = ("mul", "mul", "sub")
_REFLECTOR = ("square", "add", "sqrt", "add", "div", "mul")
_REFLECTION = ("mul", "add", "mul", "sub")


def sweeps(n: int) -> int:
    """Of Jacobi's rotations until nothing changes."""
    return 3 + math.ceil(math.log2(max(2, n)) / 2)


def eigh(op: Operation, target: Target) -> Cost:
    """Sweeps of rotations, and the values in order."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, n, _, _ = extents(op)
    return assembled(_jacobi(batch, n, matrix.dtype, target))


def _jacobi(batch: int, n: int, dtype: str, target: Target) -> list[Part]:
    whole, pairs = Shape((batch, n, n), dtype), Shape((batch, max(1, n // 2)), dtype)
    values = Shape((batch, n), "float32")
    every = sweeps(n)
    rounds = every * max(1, n - 1)
    norm = Operation("reduce_sum", (whole,), (Shape((batch,), dtype),), (("axes", (1, 2)),))
    order = Operation("sort", (values, values), (values, values), (("dimension", 1),))
    return [
        (rounds, chain(_ANGLE, pairs, target)),
        (rounds, chain(_ROTATION, pairs, target)),
        (3 * rounds, chain(_TURN, whole, target)),
        (3 * rounds, moved(whole, target)),
        (every, chain(("square",), whole, target)),
        (every, reduction(norm, target)),
        (1, sort(order, target)),
        (1, moved(whole, target)),
    ]


def svd(op: Operation, target: Target) -> Cost:
    """A polar decomposition, and the eigenvalues of its symmetric part."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, m, n, _ = extents(op)
    dtype = matrix.dtype
    tall, square = Shape((batch, m, n), dtype), Shape((batch, n, n), dtype)
    rows = batch * (m + n + n)
    by_qr = householder("Qr", (batch, m + n, n), rows, 1.0, dtype, target)
    by_cholesky = [
        (1, product(batch, n, m, n, dtype, target)),
        *cholesky_parts(batch, n, dtype, target),
        *triangular_parts(batch, n, m, dtype, target),
        *triangular_parts(batch, n, m, dtype, target),
    ]
    return assembled(
        [
            (QR_ITERATIONS, by_qr),
            (QR_ITERATIONS, product(batch, m, n, n, dtype, target)),
            *((CHOLESKY_ITERATIONS * times, cost) for times, cost in by_cholesky),
            (QR_ITERATIONS + CHOLESKY_ITERATIONS, chain(("mul", "mul", "add"), tall, target)),
            (1, product(batch, n, m, n, dtype, target)),
            (1, chain(("add", "mul"), square, target)),
            *_jacobi(batch, n, dtype, target),
            (1, product(batch, m, n, n, dtype, target)),
        ]
    )


def schur(op: Operation, target: Target) -> Cost:
    """Hessenberg's form, and steps down its diagonal."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, n, _, _ = extents(op)
    return assembled(_schur(batch, n, matrix.dtype, target))


def _schur(batch: int, n: int, dtype: str, target: Target) -> list[Part]:
    size = (batch, n, n)
    three = Shape((batch, 3), dtype)
    # Rows and columns of the form, and columns of the vectors; three each.
    turned = Shape((batch, 3, 3 * n), dtype)
    steps = n * n
    return [
        (1, householder("Hessenberg", size, 2 * batch * n, 1.0, dtype, target)),
        (1, householder("HouseholderProduct", size, batch * n, 1.0, dtype, target)),
        (steps, chain(_REFLECTOR, three, target)),
        (steps, moved(three, target)),
        (steps, chain(_REFLECTION, turned, target)),
    ]


def eig(op: Operation, target: Target) -> Cost:
    """Schur's form, a triangular system for the vectors, and their product with the basis."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, n, _, _ = extents(op)
    dtype = "complex64"
    vectors = Shape((batch, n, n), dtype)
    length = Operation("reduce_sum", (vectors,), (Shape((batch, n), dtype),), (("axes", (1,)),))
    return assembled(
        [
            *_schur(batch, n, matrix.dtype, target),
            *triangular_parts(batch, n, n, dtype, target),
            (1, product(batch, n, n, n, dtype, target)),
            (1, chain(("square",), vectors, target)),
            (1, reduction(length, target)),
            (1, chain(("mul",), vectors, target)),
        ]
    )


RULES: dict[str, Rule] = {"eig": eig, "eigh": eigh, "schur": schur, "svd": svd}
