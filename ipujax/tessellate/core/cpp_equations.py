"""Vertices in C++ of `IpuTileMapEquation`s, run by `ipu.tiles.map`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ipujax import tiles as on_tiles
from ipujax.tessellate.core.tile_common_utils import from_ipu_type_to_numpy_dtype
from ipujax.tessellate.core.tile_interpreter_primitives import decode_constant
from ipujax.tessellate.lib.pytessellate_ipu_core import (
    IpuShapedArray,
    IpuTileMapEquation,
    IpuVertexIOInfo,
)


def run_equation(equation: IpuTileMapEquation, arrays: Sequence[Any]) -> list[Any]:
    """Runs a vertex of a file in C++ on each tile.

    Args:
      equation: the vertex.
      arrays: the operands, [tiles, ...].

    Returns:
      The results, [tiles, ...].
    """
    tiles = tuple(equation.tiles)
    operands: dict[str, Any] = {}
    next_arrays = iter(arrays)
    for info in equation.inputs_info:
        if info.is_constant_input:
            constant = decode_constant(info)
            array: Any = np.broadcast_to(constant, (len(tiles), *constant.shape))
        else:
            array = next(next_arrays)
        shape = _field_shape(info)
        operands[info.name] = on_tiles.TileArray(array.reshape(len(tiles), *shape), tiles)
    results = {info.name: _struct(_field_shape(info), info) for info in equation.outputs_info}
    shapes = {info.name: info.shape for info in equation.outputs_info}
    if equation.use_tmp_space:
        aval = equation.tmp_space_aval
        results[equation.tmp_space_name] = _struct((aval.size,), aval)
    attributes = [*equation.attributes_i32, *equation.attributes_f32]
    plain = {attribute.name: attribute.value for attribute in attributes}

    def describe(*_: Any) -> dict[str, jax.ShapeDtypeStruct]:
        return results

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [*operands, *plain]
    describe.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    vertex = on_tiles.vertex(
        describe,
        source=os.path.abspath(str(equation.gp_filename)),
        name=equation.vname,
        cycles=equation.perf_estimate or None,
    )
    outputs = on_tiles.map(vertex, *operands.values(), *plain.values(), tiles=tiles)
    return [outputs[name].array.reshape(len(tiles), *shape) for name, shape in shapes.items()]


def _field_shape(info: IpuVertexIOInfo) -> tuple[int, ...]:
    """Returns the shape of a field: a vector's, or rows of a vector of vectors."""
    if info.slices2d:
        row = info.slices2d[0]
        return (len(info.slices2d), row.end - row.begin)
    return () if info.is_scalar else (info.aval.size,)


def _struct(shape: Sequence[int], described: IpuVertexIOInfo | IpuShapedArray) -> Any:
    return jax.ShapeDtypeStruct(shape, from_ipu_type_to_numpy_dtype(described.dtype))
