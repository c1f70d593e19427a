"""Functions of two and three arrays, elementwise, on tiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ipujax import poplar
from ipujax.tessellate.core.tile_common_utils import get_ipu_type_name
from ipujax.tessellate.core.tile_interpreter import (
    register_in_place,
    register_ipu_tile_primitive,
)
from ipujax.tessellate.core.tile_interpreter_primitives import (
    IpuTileMapEquation,
    make_elementwise_fields,
    make_ipu_vertex_attributes,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
    primitive_num_inout_alias_args,
)
from ipujax.tessellate.exceptions import require
from ipujax.tessellate.older_jax import Primitive

_OPERATIONS = {
    "add": "ADD",
    "atan2": "ATAN2",
    "div": "DIVIDE",
    "eq": "EQUAL",
    "ge": "GREATER_THAN_EQUAL",
    "gt": "GREATER_THAN",
    "le": "LESS_THAN_EQUAL",
    "lt": "LESS_THAN",
    "max": "MAXIMUM",
    "min": "MINIMUM",
    "mul": "MULTIPLY",
    "ne": "NOT_EQUAL",
    "pow": "POWER",
    "rem": "REMAINDER",
    "shift_left": "SHIFT_LEFT",
    "shift_right_arithmetic": "SHIFT_RIGHT_SIGN_EXTEND",
    "shift_right_logical": "SHIFT_RIGHT",
    "sub": "SUBTRACT",
}
"""PopLibs' operations by the names of primitives."""

_COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")


def make_binary1d_vertex_fullname(basename: str, dtype: Any, inplace: bool = False) -> str:
    """Returns the name of PopLibs' vertex for an operation on two vectors."""
    kind = "BinaryOp1DInPlace" if inplace else "BinaryOp1D"
    return f"popops::{kind}<popops::expr::BinaryOpType::{basename},{get_ipu_type_name(dtype)}>"


def ipu_binary_primitive_translation(
    p: Any,
    tiles: Sequence[int],
    inavals: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
) -> IpuTileMapEquation:
    """Describes the vertex of a function of two arrays."""
    del attributes
    left_aval, right_aval = inavals
    name = p.name.removesuffix("_inplace")
    is_in_place = primitive_num_inout_alias_args(p) > 0
    dtype = bool if name in _COMPARISONS else left_aval.dtype
    result = jax.ShapeDtypeStruct(left_aval.shape, dtype)
    first, output = make_elementwise_fields(p, left_aval, result, "in1", "in1Out")
    return IpuTileMapEquation(
        vname=make_binary1d_vertex_fullname(_OPERATIONS[name], left_aval.dtype, is_in_place),
        pname=p.name,
        tiles=tiles,
        inputs_info=[first, make_ipu_vertex_in_info("in2", right_aval)],
        outputs_info=[output],
    )


for _name in _OPERATIONS:
    register_ipu_tile_primitive(getattr(lax, f"{_name}_p"), ipu_binary_primitive_translation)

_in_place = functools.partial(register_in_place, translation=ipu_binary_primitive_translation)

add_inplace_p = _in_place(lax.add_p)
atan2_inplace_p = _in_place(lax.atan2_p)
div_inplace_p = _in_place(lax.div_p)
max_inplace_p = _in_place(lax.max_p)
min_inplace_p = _in_place(lax.min_p)
mul_inplace_p = _in_place(lax.mul_p)
pow_inplace_p = _in_place(lax.pow_p)
rem_inplace_p = _in_place(lax.rem_p)
sub_inplace_p = _in_place(lax.sub_p)


def _make_scaled_addition(name: str, vertex: str, sign: int) -> Any:
    """Makes a primitive `a + sign * scale * b`, with the cycles of PopLibs' vertex."""
    p = Primitive(name)
    p.def_impl(lambda a, b, scale: a + sign * scale * b)
    p.def_abstract_eval(lambda a, b, scale: a)

    def translate(
        _: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
    ) -> IpuTileMapEquation:
        del attributes
        a, b, scale = inavals
        require((a.shape, a.dtype) == (b.shape, b.dtype), f"operands of '{name}' differ")
        require(int(np.prod(scale.shape)) == 1, f"the scale of '{name}' has several elements")
        kind, size = get_ipu_type_name(a.dtype), int(np.prod(a.shape))
        integers, numbers = make_ipu_vertex_attributes(size=size)
        target = poplar.IPUModel().createDevice().getTarget()
        element = poplar.type_of_dtype(a.dtype)
        cycles = poplar.scaled_add_cycles(target, element, element, sign=sign)(size)
        return IpuTileMapEquation(
            vname=f"popops::{vertex}<{kind},{kind},{kind},false>",
            pname=name,
            tiles=tiles,
            inputs_info=[
                make_ipu_vertex_inout_info("A", a),
                make_ipu_vertex_in_info("B", b),
                make_ipu_vertex_in_info("scaleB", scale),
            ],
            outputs_info=[make_ipu_vertex_inout_info("A", a)],
            attributes_i32=integers,
            attributes_f32=numbers,
            perf_estimate=int(cycles),
        )

    register_ipu_tile_primitive(p, translate)
    return p


scaled_add_p = _make_scaled_addition("scaled_add", "ScaledAddSupervisor", 1)
scaled_sub_p = _make_scaled_addition("scaled_sub", "ScaledSubtractSupervisor", -1)


def _register_ternary(
    primitive: Any, vertex: str, fields: Sequence[str], result_operand: int
) -> None:
    def translate(
        p: Any, tiles: Sequence[int], inavals: Sequence[Any], attributes: Mapping[str, Any]
    ) -> IpuTileMapEquation:
        del attributes
        result = inavals[result_operand]
        require(len({aval.shape for aval in inavals}) == 1, f"shapes of '{p.name}' differ")
        pairs = zip(fields, inavals, strict=True)
        return IpuTileMapEquation(
            vname=make_ipu_vertex_name_templated(vertex, result.dtype),
            pname=p.name,
            tiles=tiles,
            inputs_info=[make_ipu_vertex_in_info(f, aval, vertex_dim2=1) for f, aval in pairs],
            outputs_info=[make_ipu_vertex_out_info("out", result, vertex_dim2=1)],
        )

    register_ipu_tile_primitive(primitive, translate)


_register_ternary(lax.select_n_p, "popops::Select", ("in3", "in1", "in2"), 1)
_register_ternary(lax.clamp_p, "popops::Clamp", ("in2", "in1", "in3"), 1)
