"""QR and its relatives: a Householder vector for every column, and an update with it.

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
import math
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.primitives.composite import assembled, chain, moved
from lowering.machine.primitives.reductions import reduction
from lowering.machine.primitives.vertices import FREE, Rule, camel, ceil_div, vertex
from lowering.machine.target import Target

FIXED = 83_530.0
STEP = 2_318.0
ELEMENT = 3.238
BLOCK = 32  # poplibs: QRFactorization.cpp getRowsPerIteration
COMPLEX_PRODUCTS = 4  # real ones in a complex one


@dc.dataclass(frozen=True, slots=True)
class Work:
    """What every step updates.

    Attributes:
      updates: which extents' rows: of "m", "n", "k" (m x n is factorized; k right-hand sides).
      passes: over these rows, measured in those of QR, which are two.
    """

    updates: str
    passes: float = 1.0


WORKS: Mapping[str, Work] = {
    "geqrf": Work("n"),
    "hessenberg": Work("nn"),
    "householder_product": Work("m"),
    "ormqr": Work("k"),
    "qr": Work("mn"),
    "tridiagonal": Work("n", passes=1.5),
}


def extents(op: Operation) -> tuple[int, int, int, int]:
    """(batch, rows, columns, right-hand sides); what is lower than it is wide is turned."""
    dims = max((shape.dims for shape in op.operands[:1]), default=())
    if len(dims) < 2:
        return 1, math.prod(dims), 1, 1
    batch, m, n = math.prod(dims[:-2]), max(dims[-2:]), min(dims[-2:])
    return batch, m, n, ceil_div(op.operands[-1].elements, max(1, batch * m))


def factorization(op: Operation, target: Target) -> Cost:
    """One phase that makes a vector and one that updates with it, for every column."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, m, n, k = extents(op)
    work, rows = WORKS[op.name], {"m": m, "n": n, "k": k}
    updated = batch * sum(rows[letter] for letter in work.updates)
    if not updated:
        return FREE
    return householder(camel(op.name), (batch, m, n), updated, work.passes, matrix.dtype, target)


def householder(
    name: str,
    extents: tuple[int, int, int],
    updated: int,
    passes: float,
    dtype: str,
    target: Target,
) -> Cost:
    """Steps for the columns of matrices of `extents` (batch, m, n), which update so many rows."""
    batch, m, n = extents
    size = Shape((), dtype).element_bytes
    rows, reach = ceil_div(updated, target.tiles_per_ipu), (m + BLOCK) / 2
    known = 2 * target.sync_cycles + target.exchange_cycles
    step = max(0.0, FIXED / n + STEP - known)
    products = COMPLEX_PRODUCTS if dtype.startswith("complex") else 1
    update = passes * products * rows * ELEMENT * reach
    received = reach * size * ceil_div(batch, target.tiles_per_ipu)
    used = min(target.tiles_per_ipu, updated)
    return Cost(
        phases=(Phase("Householder", step), Phase("Update", update, received)),
        repeats=n,
        temporary_bytes=reach * size * 2,
        vertices=vertex(f"poplin::experimental::{name}", dtype, used),
        flops=4.0 * passes * products * n * reach * updated,
    )


def pivoted(op: Operation, target: Target) -> Cost:
    """QR without Q, which takes the longest column left at every step (LAPACK's geqp3)."""
    matrix = op.operands[0]
    if not matrix.elements:
        return FREE
    batch, m, n, _ = extents(op)
    plain = householder("Geqp3", (batch, m, n), batch * n, 1.0, matrix.dtype, target)
    lengths = Shape((batch, n), "float32")
    longest = Operation("argmax", (lengths,), (Shape((batch,), "int32"),), (("axes", (1,)),))
    return assembled(
        [
            (1, plain),
            (n, reduction(longest, target)),
            (n, moved(Shape((batch, 2, m), matrix.dtype), target)),  # columns change places
            (n, chain(("div", "square", "sub", "mul", "sqrt"), lengths, target)),
        ]
    )


RULES: dict[str, Rule] = {**dict.fromkeys(WORKS, factorization), "geqp3": pivoted}
