"""Operators that count the gradients of their operands, for automatic loss scaling."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.graph import Node, Ref, names_in
from ipujax.doors.graphs.operators import Call, Operators
from ipujax.doors.graphs.placement import Placement
from ipujax.training.loss_scaling import Factors, LossScaling, counted


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
            return self.factors.of(self.placement.stage_of(node), variables)

        return CountedOperators(table, self.counts, find_factor, self.settings)


class CountedOperators(Operators):
    """A table of operators that counts gradients in float16.

    Args:
      table: the operators.
      counts: whether the gradient of an operand of a node, by its name, counts.
      factor_of: gives the factor that a node reads (see `counted`); None for one without.
      settings: what is counted.
    """

    def __init__(
        self,
        table: Operators,
        counts: Callable[[Node, str], bool],
        factor_of: Callable[[Node], jax.Array | None],
        settings: LossScaling,
    ):
        super().__init__(table)
        self._counts, self._factor_of, self._settings = counts, factor_of, settings

    def apply(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As `Operators.apply`."""
        node = call.node
        factor = self._factor_of(node)
        if factor is not None:
            args = self._counted(node, node.args, args, factor)
            kwargs = self._counted(node, dict(node.kwargs), kwargs, factor)
        return super().apply(call, args, kwargs)

    def _counted(self, node: Node, told: Any, given: Any, factor: jax.Array) -> Any:
        """The arguments that are given, in the structure of those that the node tells."""
        if isinstance(told, Ref):
            counts = self._counts(node, told.name)
            return jax.tree.map(lambda x: self._leaf(x, factor), given) if counts else given
        if not names_in(told):
            return given
        if isinstance(told, dict):
            return {n: self._counted(node, one, given[n], factor) for n, one in told.items()}
        pairs = zip(told, given, strict=True)
        return type(given)([self._counted(node, *pair, factor) for pair in pairs])

    def _leaf(self, value: Any, factor: jax.Array) -> Any:
        is_half = isinstance(value, jax.Array) and value.dtype == jnp.float16
        return counted(value, factor, self._settings) if is_half else value
