"""Branches that an index chooses, without an equation that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax

from lowering.jaxprs.equations import evaluate_equations_with
from lowering.jaxprs.jaxpr import JaxprEqn, bind_equation, make_jaxpr
from lowering.jaxprs.typed_jax import switch as run_switch

Branch: TypeAlias = Callable[[list[jax.Array]], list[jax.Array]]


def run_branch(
    index: jax.Array, branches: Sequence[Branch], operands: list[jax.Array]
) -> list[jax.Array]:
    """Runs one of several functions, as `lax.switch` does, by an index that is in range.

    `lax.cond` and `lax.switch` convert or clamp what decides, which on the machine is a step of its
    own; control that is laid out by hand has none.

    Args:
      index: int32, a scalar that is the place of a branch.
      branches: functions of the operands, with results of the same types.
      operands: arrays.
    """
    if len(branches) == 1:
        return branches[0](operands)

    def switch(index: jax.Array, *operands: jax.Array) -> list[jax.Array]:
        return run_switch(index, branches, [*operands])

    def run_equation(eqn: JaxprEqn, values: list[Any]) -> Sequence[Any]:
        return bind_equation(eqn, values) if eqn.primitive.name == "cond" else [index]

    closed = make_jaxpr(switch)(index, *operands)
    return evaluate_equations_with(closed, [index, *operands], run_equation)
