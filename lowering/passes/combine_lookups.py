"""The combination of several lookups in one table into one."""

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
    take_index_list,
)


def combine_lookups(program: ir.Program) -> ir.Program:
    """Combines lookups of one table.

    Before: every `gather` looks up its own indices.
    After:  in each kernel, and each body inside, those that read one table, and differ in nothing
            but how many indices they have, are one lookup of all their indices, and parts of its
            rows, unless one depends on another. A forward pass and a backward pass share none, nor
            do scopes with different options. Numbers are the same.
    """
    return combine_equations_in_kernels(
        program, CombinableKind(_match_lookup, _build_combined_lookup)
    )


def _match_lookup(eqn: JaxprEqn) -> list[SharedProperties]:
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
    other_properties = (
        extents[-1],
        dtype_name(indices.aval),
        settings_of(take_index_list(eqn, "offset_dims")),
    )
    return [SharedProperties(table, 0, other_properties)]


def _build_combined_lookup(common: SharedProperties, eqn: JaxprEqn) -> Callable[..., Sequence[Any]]:
    del common  # the equation has all its information
    params = take_index_list(eqn, "offset_dims").params

    def look_up_all_indices(table: Any, *indices: Any) -> Sequence[Any]:
        lists = [index.reshape(-1, index.shape[-1]) for index in indices]
        all_rows = eqn.primitive.bind(table, lax.concatenate(lists, 0), **params)
        parts = lax.split(all_rows, [len(part) for part in lists], 0)
        shapes = [(*index.shape[:-1], *all_rows.shape[1:]) for index in indices]
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    return look_up_all_indices
