"""Makes one lookup of several that read one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.avals import dtype_name, shape_of
from lowering.jaxpr import JaxprEqn, Literal
from lowering.passes.together import Common, Kind, combine, settings_of


def combine_lookups(program: ir.Program) -> ir.Program:
    """Combines lookups of one table.

    Before: every `gather` looks up its own indices.
    After:  in each kernel, and each body inside, those that read one table, and differ in nothing
            but how many indices they have, are one lookup of all their indices, and parts of its
            rows, unless one depends on another. A forward pass and a backward pass share none, nor
            do scopes with different options. Numbers are the same.
    """
    return combine(program, Kind(_found, _joined))


def _for_a_list(eqn: JaxprEqn) -> JaxprEqn:
    """A lookup as it is of a list of indices, [count, coordinates]."""
    numbers: lax.GatherDimensionNumbers = eqn.params["dimension_numbers"]
    window = tuple(range(1, 1 + len(numbers.offset_dims)))
    listed = numbers._replace(offset_dims=window)
    params = {**eqn.params, "dimension_numbers": listed}
    return eqn.replace(params={**params, "indices_are_sorted": False, "unique_indices": False})


def _found(eqn: JaxprEqn) -> list[Common]:
    if eqn.primitive is not lax.gather_p:
        return []
    table, indices = eqn.invars
    if isinstance(table, Literal):
        return []
    extents = shape_of(indices.aval)
    numbers: lax.GatherDimensionNumbers = eqn.params["dimension_numbers"]
    batch = len(extents) - 1
    rank = len(shape_of(eqn.outvars[0].aval))
    if numbers.operand_batching_dims or tuple(numbers.offset_dims) != tuple(range(batch, rank)):
        return []
    rest = extents[-1], dtype_name(indices.aval), settings_of(_for_a_list(eqn))
    return [Common(table, 0, rest)]


def _joined(common: Common, eqn: JaxprEqn) -> Callable[..., Sequence[Any]]:
    del common  # says no more than the equation
    params = _for_a_list(eqn).params

    def rows(table: Any, *indices: Any) -> Sequence[Any]:
        lists = [index.reshape(-1, index.shape[-1]) for index in indices]
        found = eqn.primitive.bind(table, lax.concatenate(lists, 0), **params)
        parts = lax.split(found, [len(part) for part in lists], 0)
        shapes = [(*index.shape[:-1], *found.shape[1:]) for index in indices]
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    return rows
