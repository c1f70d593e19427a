"""Computes `shard_map` over one device, and what is typed by a mesh of one, as plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lowering.equations import evaluate_with
from lowering.jaxpr import (
    Aval,
    ClosedJaxpr,
    JaxprEqn,
    ShapedArray,
    at_source_of,
    bind_equation,
    map_sub_jaxprs,
    trace_flat,
)
from lowering.passes.rewrite import Anywhere

_NO_MESH = jax.sharding.AbstractMesh((), ())
_MOVES = ("sharding_constraint", "reshard", "mesh_cast")
# Sums and extremes of one index, and changes of types that say along which axes values vary.
_SAME = frozenset({
    "psum", "psum2", "psum_invariant", "pmax", "pmin", "pvary", "pbroadcast", "pcast",
    "reduced_vary_cast", "vary_unreduced_cast", "unreduced_psum",
})  # fmt: skip


def open_single_meshes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Puts the body of a `shard_map` over one device in its place, at any depth.

    Before: any jaxpr.
    After:  no `shard_map` is over a mesh of one device, whose axes have one index each; no value
            has a type that names such a mesh. Unchanged if there was none.
    """
    if not Anywhere(_has_single_mesh)(closed.jaxpr):
        return closed
    return _opened(closed, frozenset())


def _has_single_mesh(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name == "shard_map":
        return eqn.params["mesh"].size == 1
    meshes = [getattr(getattr(var.aval, "sharding", None), "mesh", None) for var in eqn.outvars]
    explicit = jax.sharding.AxisType.Explicit
    return any(
        mesh is not None and mesh.size == 1 and explicit in mesh.axis_types for mesh in meshes
    )


def _opened(closed: ClosedJaxpr, axes: frozenset[Any]) -> ClosedJaxpr:
    """A jaxpr in another form.

    Args:
      closed: the whole function, or a body.
      axes: of meshes of one device that the body is mapped over.
    """

    def equation(eqn: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        if name == "shard_map" and eqn.params["mesh"].size == 1:
            inner = ClosedJaxpr(eqn.params["jaxpr"], ())
            names = axes | {*eqn.params["mesh"].axis_names}
            return evaluate_with(_opened(inner, names), inputs, bind_equation)
        if name in _MOVES and _has_single_mesh(eqn):
            return inputs
        if axes and _axes_of(eqn) and _axes_of(eqn) <= axes:
            return _of_one_index(eqn, inputs)
        changed = map_sub_jaxprs(eqn, lambda body: _opened(body, axes))
        return _bound_anywhere(_without_places(changed), inputs)

    return trace_flat(
        lambda *operands: evaluate_with(closed, operands, equation),
        list(map(_plain, closed.in_avals)),
    )


def _axes_of(eqn: JaxprEqn) -> frozenset[Any]:
    """The axes of meshes that an equation is about."""
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return frozenset(named if isinstance(named, (tuple, list)) else (named,))


def _of_one_index(eqn: JaxprEqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """What a collective gives along axes of one index."""
    params = eqn.params
    match eqn.primitive.name:
        case "axis_index":
            return [jnp.int32(0)]
        case "ppermute":
            return inputs if (0, 0) in params["perm"] else list(map(jnp.zeros_like, inputs))
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


def _bound_anywhere(eqn: JaxprEqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """What an equation gives, in the context of no mesh."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with at_source_of(eqn), jax.sharding.use_abstract_mesh(_NO_MESH):
        result = eqn.primitive.bind(*inputs, **params)
    return result if eqn.primitive.multiple_results else [result]


def _plain(aval: Aval) -> Aval:
    """An aval whose type names no mesh."""
    if not isinstance(aval, ShapedArray):
        return aval
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _without_places(eqn: JaxprEqn) -> JaxprEqn:
    """An equation that does not say how its results are spread."""
    places = {k: None for k, v in eqn.params.items() if isinstance(v, jax.sharding.Sharding)}
    return eqn.replace(params={**eqn.params, **places}) if places else eqn
