"""Descriptions of the vertices of primitives: their fields and plain values."""

from __future__ import annotations

import base64
import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import lax

from ipujax.tessellate.core.tile_common_utils import from_ipu_type_to_numpy_dtype as _to_dtype
from ipujax.tessellate.core.tile_common_utils import (
    from_numpy_dtype_to_ipu_type as from_numpy_dtype_to_ipu_type,
)
from ipujax.tessellate.core.tile_common_utils import get_ipu_type_name as get_ipu_type_name
from ipujax.tessellate.exceptions import check, require
from ipujax.tessellate.lib.pytessellate_ipu_core import (
    Base64Data,
    IpuVertexAttributeF32,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    IpuVertexIOType,
)
from ipujax.tessellate.lib.pytessellate_ipu_core import IpuTileMapEquation as IpuTileMapEquation
from ipujax.tessellate.lib.pytessellate_ipu_core import IpuType as IpuType
from ipujax.tessellate.older_jax import Primitive


def primitive_clone(p: Any, name: str) -> Any:
    """Returns a copy of a primitive with another name."""
    require(name != p.name, "the clone has the same name")
    clone = copy.copy(p)
    clone.name, clone.computes_as = name, getattr(p, "computes_as", p)
    return clone


def primitive_has_impl(p: Any) -> bool:
    """Returns whether a primitive has an implementation."""
    return not (inspect.ismethod(p.impl) and p.impl.__func__ is Primitive.impl)


def primitive_has_batching(p: Any) -> bool:
    """Returns whether `jax.vmap` takes a primitive: it is one of `jax.lax`, or a clone of one."""
    original = getattr(p, "computes_as", p)
    return any(value is original for value in vars(lax).values())


def primitive_num_inout_alias_args(p: Any) -> int:
    """Returns how many of a primitive's first operands are its results as well."""
    return getattr(p, "num_inout_alias_args", 0)


def make_ipu_vertex_name_templated(basename: str, *args: Any) -> str:
    """Returns the name of a template with arguments: texts, numbers, flags, element types."""
    return f"{basename}<{','.join(map(_argument_name, args))}>" if args else basename


def _argument_name(argument: Any) -> str:
    if isinstance(argument, str):
        return argument
    if isinstance(argument, (bool, int)):
        return str(argument).lower()
    return get_ipu_type_name(argument)


def make_ipu_vertex_io_info(
    name: str, iotype: IpuVertexIOType, aval: Any, vertex_dim2: int = 0
) -> IpuVertexIOInfo:
    """Describes a field by its name, its use, and the shape and dtype of one tile's array.

    Args:
      name: its name in the class.
      iotype: its use.
      aval: what has its shape and dtype.
      vertex_dim2: elements of a row of a vector of vectors; 0 for a vector, -1 for a scalar.
    """
    kind = from_numpy_dtype_to_ipu_type(aval.dtype)
    return IpuVertexIOInfo(name, iotype, aval.shape, kind, int(vertex_dim2))


def make_ipu_vertex_constant_info(name: str, data: Any, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """Describes a field of constant elements."""
    data = np.asarray(data)
    kind = from_numpy_dtype_to_ipu_type(data.dtype)
    encoded = Base64Data(base64.b64encode(data.tobytes()).decode())
    return IpuVertexIOInfo(name, IpuVertexIOType.In, data.shape, kind, vertex_dim2, encoded)


def decode_constant(info: IpuVertexIOInfo) -> np.ndarray:
    """Returns the elements of a constant field."""
    raw = info.constant_data.to_bytes()
    return np.frombuffer(raw, _to_dtype(info.dtype)).reshape(info.shape)


def make_ipu_vertex_in_info(name: str, aval: Any, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """Describes a field that is read."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.In, aval, vertex_dim2)


def make_ipu_vertex_out_info(name: str, aval: Any, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """Describes a field that is written."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.Out, aval, vertex_dim2)


def make_ipu_vertex_inout_info(name: str, aval: Any, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """Describes a field that is read and written."""
    return make_ipu_vertex_io_info(name, IpuVertexIOType.InOut, aval, vertex_dim2)


def make_elementwise_fields(
    p: Any, aval: Any, result: Any, input_name: str, inout_name: str
) -> tuple[IpuVertexIOInfo, IpuVertexIOInfo]:
    """Describes an elementwise vertex's first operand and its result: one field if in place."""
    if primitive_num_inout_alias_args(p):
        operand = make_ipu_vertex_inout_info(inout_name, aval)
        return operand, make_ipu_vertex_inout_info(inout_name, result)
    return make_ipu_vertex_in_info(input_name, aval), make_ipu_vertex_out_info("out", result)


def make_ipu_vertex_inputs(
    inavals: Mapping[str, Any],
    inout_names: set[str] = frozenset(),  # type: ignore[assignment]
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Describes fields that are read, those of `inout_names` also written."""
    return _describe(IpuVertexIOType.In, inavals, inout_names, vertex_dims2 or {})


def make_ipu_vertex_outputs(
    outavals: Mapping[str, Any],
    inout_names: set[str] = frozenset(),  # type: ignore[assignment]
    vertex_dims2: Mapping[str, int] | None = None,
) -> list[IpuVertexIOInfo]:
    """Describes fields that are written, those of `inout_names` also read."""
    return _describe(IpuVertexIOType.Out, outavals, inout_names, vertex_dims2 or {})


def _describe(
    use: IpuVertexIOType, avals: Mapping[str, Any], inouts: set[str], rows: Mapping[str, int]
) -> list[IpuVertexIOInfo]:
    return [
        make_ipu_vertex_io_info(
            name, IpuVertexIOType.InOut if name in inouts else use, aval, rows.get(name, 0)
        )
        for name, aval in avals.items()
    ]


def make_ipu_vertex_attributes(
    **kwargs: Any,
) -> tuple[list[IpuVertexAttributeI32], list[IpuVertexAttributeF32]]:
    """Describes plain fields: integers, and floating-point numbers.

    Raises:
      TypeError: something else.
    """
    integers: list[IpuVertexAttributeI32] = []
    numbers: list[IpuVertexAttributeF32] = []
    for name, value in kwargs.items():
        if isinstance(value, (int, np.integer)):
            integers.append(IpuVertexAttributeI32(name, int(value)))
        elif isinstance(value, (float, np.floating)):
            numbers.append(IpuVertexAttributeF32(name, float(value)))
        else:
            raise check.type_error(f"attribute '{name}' of a vertex is {value!r}", "give a number")
    return integers, numbers
