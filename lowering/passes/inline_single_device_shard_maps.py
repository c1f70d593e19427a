"""The rewriting of `shard_map`, and of types, over a mesh of one device as plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp

from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    ShapedArray,
    bind_equation,
    evaluate_equations_with,
    map_sub_jaxprs,
    trace_flat,
    typed_jax,
    use_source_of,
)

_EXPLICIT = jax.sharding.AxisType.Explicit
_NO_MESH = jax.sharding.AbstractMesh((), ())
_MOVES = ("sharding_constraint", "reshard", "mesh_cast")
# Sums and extremes over one index, and casts of the axes along which a type varies.
_SAME = frozenset({
    "psum", "psum2", "psum_invariant", "pmax", "pmin", "pvary", "pbroadcast", "pcast",
    "reduced_vary_cast", "vary_unreduced_cast", "unreduced_psum",
})  # fmt: skip


def inline_single_device_shard_maps(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Replaces a `shard_map` over one device by its body, at any depth.

    Before: any jaxpr.
    After:  no `shard_map` is over a mesh of one device, whose axes have one index each; no value
            has a type that names such a mesh. Unchanged if there was none.
    """
    if not EquationFinder(_has_single_mesh)(closed.jaxpr):
        return closed
    return _evaluate_without_meshes(closed, frozenset())


def _has_single_mesh(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name == "shard_map":
        return eqn.params["mesh"].size == 1
    meshes = [getattr(getattr(var.aval, "sharding", None), "mesh", None) for var in eqn.outvars]
    return any(
        mesh is not None and _EXPLICIT in mesh.axis_types and mesh.size == 1 for mesh in meshes
    )


def _evaluate_without_meshes(closed: ClosedJaxpr, axes: frozenset[Any]) -> ClosedJaxpr:
    """Returns a jaxpr without the `shard_map`s over one device, and without their types.

    Args:
      closed: the whole function, or a body.
      axes: the axes of meshes of one device over which the body is mapped.
    """

    def evaluate_without_mesh(eqn: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        if name == "shard_map" and eqn.params["mesh"].size == 1:
            mapped_body = ClosedJaxpr(eqn.params["jaxpr"], ())
            mapped_axes = axes | {*eqn.params["mesh"].axis_names}
            return evaluate_equations_with(
                _evaluate_without_meshes(mapped_body, mapped_axes), inputs, bind_equation
            )
        if name in _MOVES and _has_single_mesh(eqn):
            return inputs
        if axes and _mesh_axes_of_equation(eqn) and _mesh_axes_of_equation(eqn) <= axes:
            return _evaluate_over_one_index(eqn, inputs)
        changed = map_sub_jaxprs(eqn, lambda body: _evaluate_without_meshes(body, axes))
        return _bind_without_mesh(_drop_sharding_params(changed), inputs)

    return trace_flat(
        lambda *operands: evaluate_equations_with(closed, operands, evaluate_without_mesh),
        list(map(_aval_without_mesh, closed.in_avals)),
    )


def _mesh_axes_of_equation(eqn: JaxprEqn) -> frozenset[Any]:
    """Returns the axes of meshes that an equation names."""
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return frozenset(cast("Sequence[Any]", named if isinstance(named, (tuple, list)) else (named,)))


def _evaluate_over_one_index(eqn: JaxprEqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """Evaluates a collective along axes of one index."""
    params = eqn.params
    match eqn.primitive.name:
        case "axis_index":
            return [jnp.int32(0)]
        case "ppermute":
            return inputs if (0, 0) in params["perm"] else list(map(typed_jax.zeros_like, inputs))
        case "all_gather" | "all_gather_invariant" if not params["tiled"]:
            return [jnp.expand_dims(inputs[0], params["all_gather_dimension"])]
        case "reduce_scatter" if not params["tiled"]:
            return [jnp.squeeze(inputs[0], params["scatter_dimension"])]
        case "all_gather" | "all_gather_invariant" | "reduce_scatter" | "all_to_all":
            return inputs
        case name if name in _SAME:
            return inputs
        case _:
            return bind_equation(eqn, inputs)


def _bind_without_mesh(eqn: JaxprEqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """Evaluates an equation in the context of no mesh."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with use_source_of(eqn), jax.sharding.use_abstract_mesh(_NO_MESH):
        result = eqn.primitive.bind(*inputs, **params)
    return result if eqn.primitive.multiple_results else [result]


def _aval_without_mesh(aval: Aval) -> Aval:
    """Returns an aval whose type names no mesh."""
    if not isinstance(aval, ShapedArray):
        return aval
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _drop_sharding_params(eqn: JaxprEqn) -> JaxprEqn:
    """Returns an equation whose parameters do not say how its results are sharded."""
    removed_params = {
        k: None for k, v in eqn.params.items() if isinstance(v, jax.sharding.Sharding)
    }
    return eqn.replace(params={**eqn.params, **removed_params}) if removed_params else eqn
