"""Primitives whose vertices are described by shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ipujax.tessellate.core.lax_functions import find_function
from ipujax.tessellate.core.tile_interpreter import register_ipu_tile_primitive
from ipujax.tessellate.core.tile_interpreter_primitives import (
    IpuTileMapEquation,
    make_ipu_vertex_in_info,
    make_ipu_vertex_out_info,
)

Check = Callable[[Sequence[Any], Mapping[str, Any]], None]


def register_described(
    primitive: Any, vertex: str, check: Check | None = None, cycles: int = 0
) -> Any:
    """Registers a primitive of JAX for `tile_map`.

    Args:
      primitive: the primitive.
      vertex: the name of its vertex.
      check: raises an error for operands and parameters that vertices do not take.
      cycles: of the vertex; 0 for the planner's.
    """

    def translate(
        p: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
    ) -> IpuTileMapEquation:
        if check is not None:
            check(inavals, attributes)
        parameters = {k: v for k, v in attributes.items() if not k.startswith("ipu_")}
        structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in inavals]
        results = jax.tree.leaves(jax.eval_shape(find_function(p, parameters), *structs))
        return IpuTileMapEquation(
            vname=vertex,
            pname=p.name,
            tiles=tiles,
            inputs_info=[make_ipu_vertex_in_info(f"in{n}", a) for n, a in enumerate(structs)],
            outputs_info=[make_ipu_vertex_out_info(f"out{n}", a) for n, a in enumerate(results)],
            perf_estimate=cycles,
        )

    register_ipu_tile_primitive(primitive, translate)
    return primitive
