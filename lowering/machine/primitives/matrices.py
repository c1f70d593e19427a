"""Batches of matrices, and what the steps of algorithms on them cost."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.primitives.composite import Part, assembled, chain, product
from lowering.machine.primitives.reductions import reduction
from lowering.machine.primitives.vertices import FREE, Rule, spread
from lowering.machine.target import Target

COMPLEX_PRODUCTS = 4  # real ones in a complex one


@dc.dataclass(frozen=True, slots=True)
class Matrices:
    """Matrices of one size; the methods say what is done to an array for each of them.

    Attributes:
      batch: how many there are.
      rows: of each.
      columns: of each.
      dtype: of their elements.
      target: the chip.
    """

    batch: int
    rows: int
    columns: int
    dtype: str
    target: Target

    @classmethod
    def of(cls, shape: Shape, target: Target) -> Matrices:
        """Those that a tensor holds; a vector is one column."""
        if len(shape.dims) < 2:
            return cls(1, max(1, shape.elements), 1, shape.dtype, target)
        *batch, rows, columns = shape.dims
        return cls(math.prod(batch), rows, columns, shape.dtype, target)

    @property
    def tall(self) -> Matrices:
        """The same, turned if they are lower than they are wide."""
        if self.rows >= self.columns:
            return self
        return dc.replace(self, rows=self.columns, columns=self.rows)

    @property
    def products(self) -> int:
        """Real products in one of elements."""
        return COMPLEX_PRODUCTS if self.dtype.startswith("complex") else 1

    def array(self, *dims: int) -> Shape:
        """An array for each matrix."""
        return Shape((self.batch, *dims), self.dtype)

    def chain(self, names: str, *dims: int) -> Cost:
        """Elementwise operations, one on the result of the other."""
        return chain(names.split(), self.array(*dims), self.target)

    def moved(self, *dims: int) -> Cost:
        """Arrays are sent, and written where they arrive."""
        most = spread(self.array(*dims), self.target).most_bytes
        return Cost(phases=(Phase("OnTileCopy", most / VECTOR_BYTES, float(most)),) if most else ())

    def product(self, rows: int, inner: int, columns: int) -> Cost:
        """Products of [rows, inner] and [inner, columns]."""
        return product(self.batch, rows, inner, columns, self.dtype, self.target)

    def reduced(self, name: str, *dims: int, kept: int = 0) -> Cost:
        """Arrays reduced over all but their last `kept` axes."""
        array = self.array(*dims)
        axes = tuple(range(1, len(array.dims) - kept))
        result = self.array(*dims[len(dims) - kept :])
        return reduction(Operation(name, (array,), (result,), (("axes", axes),)), self.target)


Algorithm: TypeAlias = Callable[[Matrices], Iterable[Part]]


def by_parts(algorithm: Algorithm) -> Rule:
    """The rule of an algorithm on the matrices of the first operand."""

    def rule(op: Operation, target: Target) -> Cost:
        matrix = op.operands[0]
        return assembled(algorithm(Matrices.of(matrix, target))) if matrix.elements else FREE

    return rule
