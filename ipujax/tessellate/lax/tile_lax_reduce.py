"""Reductions on tiles, of the last axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax import lax

from ipujax.tessellate.core.tile_interpreter_primitives import make_ipu_vertex_name_templated
from ipujax.tessellate.exceptions import unsupported
from ipujax.tessellate.lax.described import register_described

_OPERATIONS = {
    "reduce_and": "ReduceAnd",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_or": "ReduceOr",
    "reduce_prod": "ReduceMul",
    "reduce_sum": "ReduceAdd",
}


def make_continuous_reduce_vertex_fullname(
    reduce_p: Any, partial_dtype: Any, out_dtype: Any, is_update: bool = False
) -> str:
    """Returns the name of PopLibs' vertex for a reduction of contiguous elements."""
    operation = f"popops::{_OPERATIONS[reduce_p.name]}"
    return make_ipu_vertex_name_templated(
        "popops::ContinuousReduce", operation, partial_dtype, out_dtype, is_update
    )


def _require_last_axes(inavals: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    axes, ndim = sorted(attributes["axes"]), len(inavals[0].shape)
    if axes != [*range(ndim - len(axes), ndim)] or not axes:
        raise unsupported(
            f"a reduction over axes {tuple(axes)} of {ndim} on tiles", "give the last ones"
        )


for _name in _OPERATIONS:
    register_described(getattr(lax, f"{_name}_p"), "popops::ContinuousReduce", _require_last_axes)
