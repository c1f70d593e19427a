"""Batches of matrices, and the cost of the steps of algorithms on them."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.primitives.composite import Part, cost_of_chain, cost_of_matmul, sum_costs
from lowering.machine.primitives.reduction_cost import reduction_cost
from lowering.machine.primitives.rule_helpers import FREE, Rule, default_mapping
from lowering.machine.target import Target

COMPLEX_PRODUCTS = 4  # real products in a complex one


@dc.dataclass(frozen=True, slots=True)
class Matrices:
    """Matrices of one size; the methods give the cost of a step on an array for each of them.

    Attributes:
      batch: how many there are.
      rows: rows of each.
      columns: columns of each.
      dtype: the type of their elements.
      target: the chip.
    """

    batch: int
    rows: int
    columns: int
    dtype: str
    target: Target

    @classmethod
    def from_shape(cls, shape: Shape, target: Target) -> Matrices:
        """Returns the matrices that a tensor holds; a vector is one column."""
        if len(shape.dims) < 2:
            return cls(1, max(1, shape.elements), 1, shape.dtype, target)
        *batch, rows, columns = shape.dims
        return cls(math.prod(batch), rows, columns, shape.dtype, target)

    @property
    def transpose_if_wide(self) -> Matrices:
        """Matrices of the same elements, transposed if they have fewer rows than columns."""
        if self.rows >= self.columns:
            return self
        return dc.replace(self, rows=self.columns, columns=self.rows)

    @property
    def real_products_per_element_product(self) -> int:
        """The number of real products in one product of elements."""
        return COMPLEX_PRODUCTS if self.dtype.startswith("complex") else 1

    def array_shape(self, *dims: int) -> Shape:
        """Returns the shape of an array for each matrix."""
        return Shape((self.batch, *dims), self.dtype)

    def chain_cost(self, names: str, *dims: int) -> Cost:
        """Returns the cost of elementwise operations, each on the last result."""
        return cost_of_chain(names.split(), self.array_shape(*dims), self.target)

    def move_cost(self, *dims: int) -> Cost:
        """Returns the cost of sending arrays and writing them where they arrive."""
        most_bytes = default_mapping(self.array_shape(*dims), self.target).most_bytes
        return Cost(
            phases=(Phase("OnTileCopy", most_bytes / VECTOR_BYTES, float(most_bytes)),)
            if most_bytes
            else ()
        )

    def matmul_cost(self, rows: int, contracted: int, columns: int) -> Cost:
        """Returns the cost of products of [rows, contracted] and [contracted, columns]."""
        return cost_of_matmul(self.batch, rows, contracted, columns, self.dtype, self.target)

    def reduction_cost_of_axes(self, name: str, *dims: int, kept_axes: int = 0) -> Cost:
        """Returns the cost of a reduction over all but the last `kept_axes` axes."""
        array = self.array_shape(*dims)
        axes = tuple(range(1, len(array.dims) - kept_axes))
        result = self.array_shape(*dims[len(dims) - kept_axes :])
        return reduction_cost(Operation(name, (array,), (result,), (("axes", axes),)), self.target)


Algorithm: TypeAlias = Callable[[Matrices], Iterable[Part]]


def rule_of_algorithm(algorithm: Algorithm) -> Rule:
    """Builds the rule of an algorithm on the matrices of the first operand."""

    def sum_parts(op: Operation, target: Target) -> Cost:
        matrix = op.operands[0]
        return (
            sum_costs(algorithm(Matrices.from_shape(matrix, target))) if matrix.elements else FREE
        )

    return sum_parts
