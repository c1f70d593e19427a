"""Factorizations: step after step along the diagonal, each of them a few short supersteps.

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

Nothing is known of what the others take. They are charged as QR with other amounts of work, by
their share of QR's multiplications; iterative ones take all steps in a number of sweeps that is
assumed, and what is fixed once.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.primitives.vertices import (
    FREE,
    Rate,
    Rule,
    camel,
    ceil_div,
    largest,
    on_worker,
    one_phase,
    spread,
    supervisor,
    vertex,
)
from lowering.machine.target import Target

FIXED = 83_530.0
STEP = 2_318.0
ELEMENT = 3.238
BLOCK = 32  # poplibs: QRFactorization.cpp getRowsPerIteration
PERMUTE = Rate(20, 1)  # cycles per element to turn swaps into a permutation; assumed


@dc.dataclass(frozen=True, slots=True)
class Work:
    """A factorization, measured in steps of QR.

    Attributes:
      updates: which extents' rows every step updates: of "m", "n", "k" (m x n is factorized; k
        right-hand sides).
      sweeps: how often all steps are taken.
      share: of the arithmetic of an update that is left.
      known: whether it is QR itself, which was measured.
    """

    updates: str
    sweeps: int = 1
    share: float = 1.0
    known: bool = False


# Sweeps: eigenvalues of symmetric matrices by reduction to three diagonals (one), then about two
# iterations per value with their vectors (LAPACK's rule of thumb), one to multiply back.
WORKS: Mapping[str, Work] = {
    "cholesky": Work("n", share=0.5),
    "cholesky_update": Work("n", share=0.5),
    "eig": Work("nn", sweeps=12),
    "eigh": Work("nn", sweeps=4),
    "geqp3": Work("n"),
    "geqrf": Work("n"),
    "hessenberg": Work("nn"),
    "householder_product": Work("m"),
    "lu": Work("n", share=0.5),
    "ormqr": Work("k"),
    "qr": Work("mn", known=True),
    "schur": Work("nn", sweeps=10),
    "svd": Work("mn", sweeps=6),
    "symmetric_product": Work("n", share=0.5),
    "triangular_solve": Work("k", share=0.5),
    "tridiagonal": Work("n"),
}
"""By primitive; `tridiagonal_solve` has no updates of rows and stands apart."""


def _matrix(op: Operation) -> tuple[int, int, int, int]:
    """(batch, rows, columns, right-hand sides); what is lower than it is wide is turned."""
    dims = max((shape.dims for shape in op.operands[:1]), default=())
    if len(dims) < 2:
        return 1, math.prod(dims), 1, 1
    batch, m, n = math.prod(dims[:-2]), max(dims[-2:]), min(dims[-2:])
    return batch, m, n, ceil_div(op.operands[-1].elements, max(1, batch * m))


def factorization(op: Operation, target: Target) -> Cost:
    """One phase that makes a vector and one that updates with it, for every column."""
    work = WORKS[op.name]
    batch, m, n, k = _matrix(op)
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    extents = {"m": m, "n": n, "k": k}
    updated = batch * sum(extents[letter] for letter in work.updates)
    rows, reach = ceil_div(updated, target.tiles_per_ipu), (m + BLOCK) / 2
    known = 2 * target.sync_cycles + target.exchange_cycles
    steps = n * work.sweeps
    step = max(0.0, FIXED / steps + STEP - known)
    update = work.share * rows * ELEMENT * reach
    received = reach * matrix.element_bytes * ceil_div(batch, target.tiles_per_ipu)
    name = f"poplin::experimental::{camel(op.name)}"
    used = min(target.tiles_per_ipu, updated)
    return Cost(
        phases=(Phase("Householder", step), Phase("Update", update, received)),
        repeats=steps,
        temporary_bytes=reach * matrix.element_bytes * 2,
        vertices=vertex(name, matrix.dtype, used),
        flops=4.0 * work.share * steps * reach * updated,
        source="formula" if work.known and batch == 1 else "default",
    )


def tridiagonal_solve(op: Operation, target: Target) -> Cost:
    """Forward and back along the diagonal, the systems side by side on the workers."""
    diagonal, sides = op.operands[0], largest(op.operands)
    if not sides.elements or not diagonal.dims:
        return FREE
    length = diagonal.dims[-1]
    systems = ceil_div(sides.elements, length)
    mine = on_worker(ceil_div(systems, target.tiles_per_ipu), target)
    worker = 29 + 2 * length * mine * (10 + 3 * 3)  # a division and three multiply-adds
    cost = one_phase(op, target, sides, supervisor(worker, target), library="poplin")
    return dc.replace(cost, flops=8.0 * sides.elements, source="default")


def permutation(op: Operation, target: Target) -> Cost:
    """One worker follows the swaps of each matrix."""
    swaps: Shape = op.operands[0]
    result = largest(op.results)
    if not result.elements or not result.dims:
        return FREE
    batch = math.prod(swaps.dims[:-1])
    here = ceil_div(ceil_div(batch, target.tiles_per_ipu), target.workers)
    worker = PERMUTE.loop(result.dims[-1] * here, result.dtype)
    cost = one_phase(op, target, result, supervisor(worker, target), library="poplin")
    received = spread(swaps, target).total_bytes / max(1, min(batch, target.tiles_per_ipu))
    phase = dc.replace(cost.phases[0], exchange_bytes=float(received))
    return dc.replace(cost, phases=(phase,), source="default")


RULES: dict[str, Rule] = {
    **dict.fromkeys(WORKS, factorization),
    "lu_pivots_to_permutation": permutation,
    "tridiagonal_solve": tridiagonal_solve,
}
