"""Makes one product of matrices of several that share an operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.avals import dtype_name, shape_of
from lowering.jaxpr import JaxprEqn, Literal
from lowering.passes.together import Common, Kind, combine, settings_of


def combine_products(program: ir.Program) -> ir.Program:
    """Combines products that have their weights or their input in common.

    Before: every product is an equation of its own.
    After:  in each kernel, and each body inside, those that share an operand and differ in nothing
            but the first free dimension of the other one, its contents and its extent, are one
            product of their others side by side, and parts of its result, unless one depends on
            another. A forward pass and a backward pass share none, nor do scopes with different
            options. Numbers differ by rounding at most, since a larger product may be summed in
            another order.
    """
    return combine(program, Kind(_found, _joined))


def _free(eqn: JaxprEqn, operand: int) -> list[int]:
    """The dimensions of an operand that are neither summed over nor shared by both."""
    contracting, batch = (pair[operand] for pair in eqn.params["dimension_numbers"])
    rank = len(shape_of(eqn.invars[operand].aval))
    return [axis for axis in range(rank) if axis not in (*contracting, *batch)]


def _found(eqn: JaxprEqn) -> list[Common]:
    if eqn.primitive is not lax.dot_general_p:
        return []
    found: list[Common] = []
    for position, shared in enumerate(eqn.invars):
        free, other = _free(eqn, 1 - position), eqn.invars[1 - position].aval
        if free and not isinstance(shared, Literal):
            extents = list(shape_of(other))
            del extents[free[0]]
            rest = tuple(extents), dtype_name(other), settings_of(eqn)
            found.append(Common(shared, position, rest))
    return found


def _joined(common: Common, eqn: JaxprEqn) -> Callable[..., Sequence[Any]]:
    position, params = common.position, eqn.params
    axis = _free(eqn, 1 - position)[0]
    batch = len(params["dimension_numbers"][1][0])
    place = batch + (len(_free(eqn, 0)) if position == 0 else 0)  # of that axis in the result

    def product(shared: Any, *others: Any) -> Sequence[Any]:
        together = lax.concatenate(others, axis)
        operands = (shared, together) if position == 0 else (together, shared)
        result = eqn.primitive.bind(*operands, **params)
        return lax.split(result, [other.shape[axis] for other in others], place)

    return product
