"""Functions of one array, elementwise, on tiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import lax

from ipujax.tessellate.core.tile_array import TileShardedArray
from ipujax.tessellate.core.tile_common_utils import get_ipu_type_name
from ipujax.tessellate.core.tile_interpreter import (
    register_in_place,
    register_ipu_tile_primitive,
    tile_map,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    IpuTileMapEquation,
    make_elementwise_fields,
    make_ipu_vertex_in_info,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
    primitive_num_inout_alias_args,
)
from ipujax.tessellate.exceptions import unsupported
from ipujax.tessellate.older_jax import Primitive

_OPERATIONS = {
    "abs": "ABSOLUTE",
    "asin": "ASIN",
    "cbrt": "CBRT",
    "ceil": "CEIL",
    "cos": "COS",
    "erf": "ERF",
    "exp": "EXPONENT",
    "expm1": "EXPONENT_MINUS_ONE",
    "floor": "FLOOR",
    "is_finite": "IS_FINITE",
    "log": "LOGARITHM",
    "log1p": "LOGARITHM_ONE_PLUS",
    "neg": "NEGATE",
    "population_count": "POPCOUNT",
    "round": "ROUND",
    "rsqrt": "RSQRT",
    "sign": "SIGNUM",
    "sin": "SIN",
    "sqrt": "SQRT",
    "tan": "TAN",
    "tanh": "TANH",
}
"""PopLibs' operations by the names of primitives."""


def make_unary1d_vertex_fullname(basename: str, dtype: Any, inplace: bool) -> str:
    """Returns the name of PopLibs' vertex for an operation on a vector."""
    kind = "UnaryOp1DInPlace" if inplace else "UnaryOp1D"
    return f"popops::{kind}<popops::expr::UnaryOpType::{basename},{get_ipu_type_name(dtype)}>"


def ipu_unary_primitive_translation(
    p: Any,
    tiles: Sequence[int],
    inavals: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
) -> IpuTileMapEquation:
    """Describes the vertex of a function of one array."""
    del attributes
    (aval,) = inavals
    is_in_place = primitive_num_inout_alias_args(p) > 0
    operation = _OPERATIONS[p.name.removesuffix("_inplace")]
    result = jax.ShapeDtypeStruct(aval.shape, bool if operation == "IS_FINITE" else aval.dtype)
    operand, output = make_elementwise_fields(p, aval, result, "in", "inOut")
    return IpuTileMapEquation(
        vname=make_unary1d_vertex_fullname(operation, aval.dtype, is_in_place),
        pname=p.name,
        tiles=tiles,
        inputs_info=[operand],
        outputs_info=[output],
    )


for _name in _OPERATIONS:
    register_ipu_tile_primitive(getattr(lax, f"{_name}_p"), ipu_unary_primitive_translation)

_in_place = functools.partial(register_in_place, translation=ipu_unary_primitive_translation)

abs_inplace_p = _in_place(lax.abs_p)
asin_inplace_p = _in_place(lax.asin_p)
cbrt_inplace_p = _in_place(lax.cbrt_p)
ceil_inplace_p = _in_place(lax.ceil_p)
erf_inplace_p = _in_place(lax.erf_p)
exp_inplace_p = _in_place(lax.exp_p)
expm1_inplace_p = _in_place(lax.expm1_p)
floor_inplace_p = _in_place(lax.floor_p)
is_finite_inplace_p = _in_place(lax.is_finite_p)
log_inplace_p = _in_place(lax.log_p)
log1p_inplace_p = _in_place(lax.log1p_p)
neg_inplace_p = _in_place(lax.neg_p)
population_count_inplace_p = _in_place(lax.population_count_p)
round_inplace_p = _in_place(lax.round_p)
rsqrt_inplace_p = _in_place(lax.rsqrt_p)
sign_inplace_p = _in_place(lax.sign_p)
sin_inplace_p = _in_place(lax.sin_p)
sqrt_inplace_p = _in_place(lax.sqrt_p)
tan_inplace_p = _in_place(lax.tan_p)
tanh_inplace_p = _in_place(lax.tanh_p)


def _translate_conversion(
    p: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
) -> IpuTileMapEquation:
    (aval,) = inavals
    result = jax.ShapeDtypeStruct(aval.shape, attributes["new_dtype"])
    return IpuTileMapEquation(
        vname=make_ipu_vertex_name_templated("popops::Cast1D", aval.dtype, result.dtype),
        pname=p.name,
        tiles=tiles,
        inputs_info=[make_ipu_vertex_in_info("src", aval)],
        outputs_info=[make_ipu_vertex_out_info("dst", result)],
    )


def _translate_power(
    p: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
) -> IpuTileMapEquation:
    (aval,), exponent = inavals, attributes["y"]
    if exponent not in (-1, 2):
        raise unsupported(f"the power of {exponent} on tiles", "there are -1 and 2")
    operation = "INVERSE" if exponent == -1 else "SQUARE"
    return IpuTileMapEquation(
        vname=make_unary1d_vertex_fullname(operation, aval.dtype, False),
        pname=p.name,
        tiles=tiles,
        inputs_info=[make_ipu_vertex_in_info("in", aval)],
        outputs_info=[make_ipu_vertex_out_info("out", aval)],
    )


register_ipu_tile_primitive(lax.convert_element_type_p, _translate_conversion)
register_ipu_tile_primitive(lax.integer_pow_p, _translate_power)

copy_p = Primitive("tile_copy")
copy_p.def_impl(lambda x: x)
copy_p.def_abstract_eval(lambda x: x)


def _translate_copy(
    p: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
) -> IpuTileMapEquation:
    del attributes
    (aval,) = inavals
    return IpuTileMapEquation(
        vname="poplar_rt::Memcpy64Bit",
        pname=p.name,
        tiles=tiles,
        inputs_info=[make_ipu_vertex_in_info("in", aval)],
        outputs_info=[make_ipu_vertex_out_info("out", aval)],
    )


register_ipu_tile_primitive(copy_p, _translate_copy)


def tile_copy(arr: TileShardedArray) -> TileShardedArray:
    """Returns a copy of a value on its tiles."""
    return tile_map(copy_p, arr)
