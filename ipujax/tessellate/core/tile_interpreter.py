"""Primitives on tiles: their creation, registration and mapping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax import tiles as on_tiles
from ipujax.tessellate.core.cpp_equations import run_equation
from ipujax.tessellate.core.lax_functions import find_function
from ipujax.tessellate.core.tile_array import TileShardedArray
from ipujax.tessellate.core.tile_array_primitives import runs_on_ipu
from ipujax.tessellate.core.tile_common_utils import get_ipu_type_name, make_ipu_shaped_array
from ipujax.tessellate.core.tile_interpreter_primitives import (
    IpuTileMapEquation,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_inputs,
    make_ipu_vertex_outputs,
    primitive_clone,
)
from ipujax.tessellate.exceptions import check, require, unknown_primitive
from ipujax.tessellate.older_jax import Primitive

Translation = Callable[..., IpuTileMapEquation]
Avals = Sequence[Any]

_REGISTRY: dict[str, tuple[Any, Translation]] = {}


def register_ipu_tile_primitive(primitive: Any, translation: Translation) -> None:
    """Registers a primitive for `tile_map`.

    Args:
      primitive: the primitive.
      translation: `(primitive, tiles, shapes of one tile's operands, attributes)` -> the vertex.

    Raises:
      KeyError: a primitive of that name is there.
    """
    if primitive.name in _REGISTRY:
        raise unknown_primitive(f"primitive '{primitive.name}' is registered already")
    _REGISTRY[primitive.name] = (primitive, translation)


def register_in_place(primitive: Any, translation: Translation) -> Any:
    """Registers a primitive for `tile_map` that writes its result over its first operand.

    Args:
      primitive: the one that does not.
      translation: as for `register_ipu_tile_primitive`.

    Returns:
      The new primitive, `<name>_inplace`.
    """
    clone = primitive_clone(primitive, f"{primitive.name}_inplace")
    clone.num_inout_alias_args = 1
    register_ipu_tile_primitive(clone, translation)
    return clone


def get_ipu_tile_primitive_translation(pname: str) -> tuple[Any, Translation]:
    """Returns the primitive of a name, and the function that describes its vertex."""
    return _REGISTRY[pname]


@check.guard
def tile_map(primitive: Any, *args: TileShardedArray, **kwargs: Any) -> Any:
    """Runs a primitive on each tile of its operands.

    Args:
      primitive: one that is registered; None gives the operands back.
      *args: values on the same tiles.
      **kwargs: the primitive's parameters, and `tiles`, where there are no operands; `sync`, which
        changes nothing, since tiles always wait for each other before a compute set.

    Raises:
      KeyError: a primitive that is not registered.
      TypeError: operands that are on no tiles.
      ValueError: operands that are on different ones.
    """
    attributes = {name: value for name, value in kwargs.items() if name not in ("tiles", "sync")}
    if primitive is None:
        return args
    if primitive.name not in _REGISTRY:
        raise unknown_primitive(
            f"primitive '{primitive.name}' is not supported on tiles",
            f"supported are {', '.join(sorted(_REGISTRY))}",
        )
    if not all(isinstance(value, TileShardedArray) for value in args):
        raise check.type_error(
            "tile_map takes values on tiles", "put them there by tile_put_sharded"
        )
    all_tiles = [value.tiles for value in args]
    tiles = tuple(all_tiles[0] if kwargs.get("tiles") is None else kwargs["tiles"])
    is_together = all(other_tiles == tiles for other_tiles in all_tiles)
    require(is_together, f"operands of '{primitive.name}' on other tiles")
    translation = _REGISTRY[primitive.name][1]
    equation = translation(primitive, tiles, [value.tile_aval for value in args], attributes)
    results = _run(primitive, equation, [value.array for value in args], attributes)
    result_tiles = tuple(equation.tiles)
    if not primitive.multiple_results:
        return TileShardedArray(results[0], result_tiles)
    return tuple(TileShardedArray(result, result_tiles) for result in results)


def _run(
    primitive: Any, equation: IpuTileMapEquation, arrays: Sequence[Any], attributes: dict[str, Any]
) -> Sequence[Any]:
    """Returns the results, [tiles, ...], of vertices in a program, or else of plain JAX."""
    is_on_ipu = runs_on_ipu(*arrays)
    if is_on_ipu and equation.gp_filename:
        return run_equation(equation, arrays)
    parameters = {k: v for k, v in attributes.items() if not k.startswith("ipu_")}
    function = find_function(primitive, parameters, is_on_ipu=is_on_ipu)
    tiles = tuple(equation.tiles)
    if is_on_ipu:
        cycles = equation.perf_estimate or None
        vertex = on_tiles.vertex(function, cycles=cycles, threads=6, name=primitive.name)
        operands = [on_tiles.TileArray(array, tiles) for array in arrays]
        values = on_tiles.map(vertex, *operands, tiles=tiles)
        return [value.array for value in (values if isinstance(values, tuple) else (values,))]
    results = jax.vmap(function, axis_size=len(tiles))(*arrays)
    return results if isinstance(results, (tuple, list)) else (results,)


@check.guard
def create_ipu_tile_primitive(
    pname: str,
    vname: str,
    inputs: Sequence[str],
    outputs: Mapping[str, Any],
    constants: Mapping[str, Callable[..., Any]] | None = None,
    tmp_space: Any = None,
    gp_filename: str | None = None,
    perf_estimate: int = 0,
) -> Any:
    """Makes a primitive of a vertex.

    Args:
      pname: the primitive's name.
      vname: the class; `{input}` stands for the element type of that input.
      inputs: the fields of the operands.
      outputs: the fields of the results; each with the number of the input whose shape it has, or
        a shape. A field that is an input too is read and written.
      constants: fields with constant elements: functions of the inputs' and outputs' shapes and
        the parameters.
      tmp_space: the shape of the vertex's field `tmp`, or the number of the input that has it.
      gp_filename: the file in C++.
      perf_estimate: the cycles of a vertex; 0 for the default estimate.
    """

    def shape_of(input_or_shape: Any, avals: Avals) -> Any:
        return avals[input_or_shape] if isinstance(input_or_shape, int) else input_or_shape

    def describe(avals: Avals, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        results = {name: shape_of(output, avals) for name, output in outputs.items()}
        constant_values = {
            name: make(list(avals), list(results.values()), attributes)
            for name, make in (constants or {}).items()
        }
        space = {} if tmp_space is None else {"tmp": shape_of(tmp_space, avals)}
        return results, constant_values, space, perf_estimate

    p = _make_primitive(pname, vname, tuple(inputs), describe, gp_filename)
    p.multiple_results = len(outputs) > 1
    return p


@check.guard
def create_ipu_tile_primitive_v2(
    pname: str, vname: str, initializer_fn: Callable[..., Any], gp_filename: str | None = None
) -> Any:
    """Makes a primitive of a vertex.

    Args:
      pname: the primitive's name.
      vname: the class; `{input}` stands for the element type of that input.
      initializer_fn: the inputs' shapes, its parameters being the fields -> dicts of the outputs'
        shapes, of constants and of at most one field for the vertex itself, and the cycles.
      gp_filename: the file in C++.

    Raises:
      ValueError: fields that are read and written, and are not the first of both.
    """
    inputs = tuple(inspect.signature(initializer_fn).parameters)

    def describe(avals: Avals, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        outputs, constants, temps, cycles = initializer_fn(*avals)
        inouts = [name for name in inputs if name in outputs]
        if inouts != list(inputs[: len(inouts)]) or inouts != [*outputs][: len(inouts)]:
            raise check.value_error(
                f"fields {', '.join(inouts)} of '{vname}' are read and written, and are not first",
                "let them be the first inputs, and the first outputs",
            )
        return outputs, constants or {}, temps or {}, cycles

    return _make_primitive(pname, vname, inputs, describe, gp_filename)


@check.guard
def declare_ipu_tile_primitive(
    vname: str, gp_filename: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Makes a primitive of the decorated function; see `create_ipu_tile_primitive_v2`.

    Its name is the function's, which must end in `_p`, without that.
    """

    def make(function: Callable[..., Any]) -> Any:
        name = function.__name__
        if not name.endswith("_p"):
            raise check.value_error(f"name '{name}' of a primitive does not end in _p")
        return create_ipu_tile_primitive_v2(name.removesuffix("_p"), vname, function, gp_filename)

    return make


def _make_primitive(
    pname: str,
    vname: str,
    inputs: tuple[str, ...],
    describe: Callable[[Avals, Mapping[str, Any]], tuple[Any, ...]],
    gp_filename: str | None,
) -> Any:
    """Makes a primitive; `describe` returns its outputs, constants, temporaries and cycles."""
    p = Primitive(check.require_text(pname, "pname"))
    check.require_text(vname, "vname")

    def find_avals(*avals: Any, **attributes: Any) -> Any:
        outputs = tuple(describe(avals, attributes)[0].values())
        p.multiple_results = len(outputs) > 1
        return outputs if p.multiple_results else outputs[0]

    def translate(
        _: Any, tiles: Sequence[int], avals: Avals, attributes: Mapping[str, Any] | None = None
    ) -> IpuTileMapEquation:
        require(len(avals) == len(inputs), f"'{pname}' takes {', '.join(inputs)}")
        outputs, constants, temps, cycles = describe(avals, attributes or {})
        require(len(temps) <= 1, f"'{pname}' has more than one temporary")
        p.multiple_results = len(outputs) > 1
        inouts = {name for name in inputs if name in outputs}
        types = {n: get_ipu_type_name(a.dtype) for n, a in zip(inputs, avals, strict=True)}
        integers, numbers = make_ipu_vertex_attributes(**(attributes or {}))
        constant_fields = [
            make_ipu_vertex_constant_info(n, np.asarray(v)) for n, v in constants.items()
        ]
        equation = IpuTileMapEquation(
            vname=vname.format(**types),
            pname=pname,
            tiles=tiles,
            inputs_info=[
                *make_ipu_vertex_inputs(dict(zip(inputs, avals, strict=True)), inouts),
                *constant_fields,
            ],
            outputs_info=make_ipu_vertex_outputs(outputs, inouts),
            attributes_i32=integers,
            attributes_f32=numbers,
            gp_filename=gp_filename,
            perf_estimate=cycles,
        )
        for name, aval in temps.items():
            equation.tmp_space_name = name
            equation.tmp_space_aval = make_ipu_shaped_array(aval.shape, aval.dtype)
        return equation

    p.def_abstract_eval(find_avals)
    register_ipu_tile_primitive(p, translate)
    return p
