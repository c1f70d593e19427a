"""The combination of several products of matrices that share an operand into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.jaxprs import JaxprEqn, Literal, dtype_name, shape_of
from lowering.passes.combine import (
    CombinableKind,
    SharedProperties,
    combine_equations_in_kernels,
    settings_of,
)


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
    return combine_equations_in_kernels(
        program, CombinableKind(_match_product, _build_combined_product)
    )


def _free_axes_of_operand(eqn: JaxprEqn, operand: int) -> list[int]:
    """Returns the axes of an operand that are neither contracted nor batch axes."""
    contracting, batch = (pair[operand] for pair in eqn.params["dimension_numbers"])
    rank = len(shape_of(eqn.invars[operand].aval))
    return [axis for axis in range(rank) if axis not in (*contracting, *batch)]


def _match_product(eqn: JaxprEqn) -> list[SharedProperties]:
    if eqn.primitive is not lax.dot_general_p:
        return []
    commons: list[SharedProperties] = []
    for position, shared in enumerate(eqn.invars):
        free_axes, other_aval = (
            _free_axes_of_operand(eqn, 1 - position),
            eqn.invars[1 - position].aval,
        )
        if free_axes and not isinstance(shared, Literal):
            extents = list(shape_of(other_aval))
            del extents[free_axes[0]]
            other_properties = tuple(extents), dtype_name(other_aval), settings_of(eqn)
            commons.append(SharedProperties(shared, position, other_properties))
    return commons


def _build_combined_product(
    common: SharedProperties, eqn: JaxprEqn
) -> Callable[..., Sequence[Any]]:
    position, params = common.position, eqn.params
    axis = _free_axes_of_operand(eqn, 1 - position)[0]
    batch = len(params["dimension_numbers"][1][0])
    result_axis = batch + (
        len(_free_axes_of_operand(eqn, 0)) if position == 0 else 0
    )  # in the result

    def multiply_side_by_side(shared: Any, *other_operands: Any) -> Sequence[Any]:
        concatenated = lax.concatenate(other_operands, axis)
        operands = (shared, concatenated) if position == 0 else (concatenated, shared)
        result = eqn.primitive.bind(*operands, **params)
        return lax.split(result, [operand.shape[axis] for operand in other_operands], result_axis)

    return multiply_side_by_side
