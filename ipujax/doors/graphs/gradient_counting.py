"""Operators that count float16 gradients of their operands for automatic loss scaling."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.graph import Node, Ref, names_of_refs
from ipujax.doors.graphs.operators import Call, Operand, Operators
from ipujax.doors.graphs.placement import Placement
from ipujax.training import Factors, LossScaling, pass_and_count_gradient


@dc.dataclass(frozen=True, eq=False)
class GradientCounting:
    """The gradients that are counted, in float16 alone, and the factors that follow from them.

    Attributes:
      settings: what is counted, and when the factors change.
      placement: where the nodes of the graph run; each stage of a pipeline has a factor.
      counts: whether the gradient of an operand of a node, by its name, counts.
    """

    settings: LossScaling
    placement: Placement
    counts: Callable[[Node, str], bool]

    @property
    def factors(self) -> Factors:
        """The factors of the loss."""
        return Factors(self.settings, self.placement.stage_count)

    def count(self, table: Operators, variables: Mapping[str, jax.Array]) -> Operators:
        """Returns a table of operators that counts gradients, by factors among the variables."""

        def find_factor(node: Node) -> jax.Array | None:
            return self.factors.factor_of_stage(self.placement.stage_of(node), variables)

        return CountedOperators(table, self.counts, find_factor, self.settings)


class CountedOperators(Operators):
    """A table of operators that counts the float16 gradients of their operands.

    Args:
      table: the operators.
      counts: whether the gradient of an operand of a node, by its name, counts.
      factor_of: returns the loss scaling factor of a node or None.
      settings: the thresholds of loss scaling.
    """

    def __init__(
        self,
        table: Operators,
        counts: Callable[[Node, str], bool],
        factor_of: Callable[[Node], jax.Array | None],
        settings: LossScaling,
    ):
        super().__init__(table)
        self._table, self._counts = table, counts
        self._factor_of, self._settings = factor_of, settings

    def apply(self, call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> Operand:
        """Has the table apply an operator to operands whose counted gradients are marked."""
        node = call.node
        factor = self._factor_of(node)
        if factor is not None:
            args = self._count_operands(node, node.args, args, factor)
            kwargs = self._count_operands(node, dict(node.kwargs), kwargs, factor)
        return self._table.apply(call, args, kwargs)

    def _count_operands(self, node: Node, operands: Any, values: Any, factor: jax.Array) -> Operand:
        """Returns values in the structure of a node's operands, with the counted ones marked."""
        if isinstance(operands, Ref):
            counts = self._counts(node, operands.name)
            return (
                jax.tree.map(lambda x: self._count_gradient_of_float16(x, factor), values)
                if counts
                else values
            )
        if not names_of_refs(operands):
            return values
        if isinstance(operands, dict):
            return {
                n: self._count_operands(node, operand, values[n], factor)
                for n, operand in operands.items()
            }
        pairs = zip(operands, values, strict=True)
        return type(values)([self._count_operands(node, *pair, factor) for pair in pairs])

    def _count_gradient_of_float16(self, value: object, factor: jax.Array) -> Operand:
        is_float16 = isinstance(value, jax.Array) and value.dtype == jnp.float16
        return pass_and_count_gradient(value, factor, self._settings) if is_float16 else value
