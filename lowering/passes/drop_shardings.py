"""The removal of JAX devices from a program: IPUs, and the mesh of each IPU, take their place."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding

from lowering.ground import DeviceMeshError
from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    body_of_call,
    function_of_jaxpr,
    rewrite_equations,
    sub_jaxprs,
    typed_jax,
    user_line,
    walk_equations,
)
from lowering.ops import REPLICAS

_EXPLICIT = jax.sharding.AxisType.Explicit
_PLACES: tuple[type, ...] = (jax.sharding.Sharding, typed_jax.Device)


def drop_shardings(closed: ClosedJaxpr, mesh: AbstractMesh | None = None) -> ClosedJaxpr:
    """Removes the shardings that say on which JAX devices arrays are, at any depth.

    Before: no `shard_map` is over a single device, unless that is the mesh of an IPU.
    After:  without a mesh, no sharding constraint, no transfer to a device, no jit with shardings:
            none of them changes a number. With a mesh, that of each IPU, those over its axes are
            constraints and `shard_map`s over that mesh; others are removed.
    Raises: DeviceMeshError: a `shard_map` (as `pmap` is one) over another mesh; values whose types
            name devices (meshes with axes of type Explicit); a constraint over other axes.
    """
    names_devices = EquationFinder(_names_devices)
    if not names_devices(closed.jaxpr):
        return closed
    _refuse_device_meshes(closed.jaxpr, names_devices, mesh, "")
    drop = functools.partial(_drop_sharding, mesh)
    return rewrite_equations(closed, names_devices, drop)


def list_lines_with_shardings(closed: ClosedJaxpr) -> list[str]:
    """Returns the user's `file:line` of each equation that says on which JAX devices arrays are.

    Only those that name several devices count: a program without meshes leaves them out.
    """
    equations = filter(_names_devices, walk_equations(closed.jaxpr))
    lines = [user_line(eqn) for eqn in equations if any(map(_spreads, _shardings_named_by(eqn)))]
    return list(dict.fromkeys(filter(None, lines)))


def _shardings_named_by(eqn: JaxprEqn) -> Sequence[Any]:
    if eqn.primitive.name == "jit":
        return [*eqn.params["in_shardings"], *eqn.params["out_shardings"]]
    return [] if eqn.primitive.name == "shard_map" else _shardings_of_equation(eqn)


def _spreads(sharding: Any) -> bool:
    return isinstance(sharding, jax.sharding.Sharding) and sharding.num_devices > 1


def _drop_sharding(mesh: AbstractMesh | None, rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    if eqn.primitive.name == "shard_map":
        in_context = jax.sharding.get_abstract_mesh()
        rewriter.keep_equation(eqn.replace(params={**eqn.params, "mesh": in_context}))
        return
    body = body_of_call(eqn)
    if body is None:
        shardings = _shardings_of_equation(eqn)
        rewriter.replace_by_function(eqn, lambda *arrays: _constrain(arrays, shardings, mesh))
    elif mesh is None:
        rewriter.replace_by_jaxpr(eqn, body)
    else:
        before, after = eqn.params["in_shardings"], eqn.params["out_shardings"]

        def call_with_constraints(*arrays: jax.Array) -> list[jax.Array]:
            operands = _constrain(arrays, before, mesh)
            results = function_of_jaxpr(body)(*operands)
            return _constrain(results, after, mesh)

        rewriter.replace_by_function(eqn, call_with_constraints)


def _shardings_of_equation(eqn: JaxprEqn) -> Sequence[Any]:
    if eqn.primitive.name == "device_put":
        return eqn.params["devices"]
    return [eqn.params["sharding"]] if "sharding" in eqn.params else []


def _constrain(
    arrays: Sequence[jax.Array], shardings: Sequence[Any], mesh: AbstractMesh | None
) -> list[jax.Array]:
    """Constrains the arrays whose shardings are over the axes of the IPUs' mesh."""
    if mesh is None:
        return list(arrays)
    return [
        typed_jax.with_sharding_constraint(array, sharding.spec)
        if isinstance(sharding, NamedSharding) and _has_axes_of(sharding.mesh, mesh)
        else array
        for array, sharding in zip(arrays, shardings, strict=True)
    ]


def _has_axes_of(one: Any, mesh: AbstractMesh | None) -> bool:
    """Returns whether a mesh has the axes of the IPUs' mesh, with the same sizes."""
    sizes = {name: size for name, size in one.shape.items() if name != REPLICAS}
    return mesh is not None and sizes == dict(mesh.shape)


def _names_devices(eqn: JaxprEqn) -> bool:
    if any(_has_explicit_sharding(var.aval) for var in eqn.outvars):
        return True
    match eqn.primitive.name:
        case "sharding_constraint" | "shard_map":
            return True
        case "device_put":
            return any(isinstance(device, _PLACES) for device in eqn.params["devices"])
        case "jit":
            shardings = (*eqn.params["in_shardings"], *eqn.params["out_shardings"])
            return any(isinstance(sharding, _PLACES) for sharding in shardings)
        case _:
            return False


def _has_explicit_sharding(aval: Aval) -> bool:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return mesh is not None and _EXPLICIT in mesh.axis_types


def _refuse_device_meshes(
    jaxpr: Jaxpr, names_devices: EquationFinder, mesh: AbstractMesh | None, outer_line: str
) -> None:
    """Refuses device meshes other than `mesh`; `outer_line` is that of the equation around."""
    for eqn in jaxpr.eqns:
        line = user_line(eqn) or outer_line
        if names_devices.occurs_inside(eqn):
            for body in sub_jaxprs(eqn):
                _refuse_device_meshes(body, names_devices, mesh, line)
        if any(_has_explicit_sharding(var.aval) for var in eqn.outvars):
            raise _device_mesh_error(
                f"`{eqn.primitive.name}` makes a value that is spread over JAX devices by its "
                "type (a mesh with axes of type Explicit)",
                line,
                "use a mesh with axes of type Auto, whose shardings are left out; or ",
            )
        if eqn.primitive.name == "shard_map" and not _has_axes_of(eqn.params["mesh"], mesh):
            raise _shard_map_error(eqn.params["mesh"], mesh, line)
        if mesh is not None and eqn.primitive.name == "sharding_constraint":
            _refuse_constraint_over_other_axes(eqn.params["sharding"], mesh, line)


def _refuse_constraint_over_other_axes(sharding: Any, mesh: AbstractMesh, line: str) -> None:
    if isinstance(sharding, NamedSharding) and not _has_axes_of(sharding.mesh, mesh):
        raise DeviceMeshError(
            f"a sharding constraint over a mesh with the axes {dict(sharding.mesh.shape)}, and the "
            f"meshes of the IPUs have {dict(mesh.shape)}",
            where=line,
            fix="give the PartitionSpec alone, over axes of these: it is for the mesh of the IPU "
            "that computes the value",
        )


def _shard_map_error(used: Any, mesh: AbstractMesh | None, line: str) -> DeviceMeshError:
    if mesh is None:
        return _device_mesh_error(
            f"`shard_map` (or `pmap`) over a mesh of {used.size} JAX devices",
            line,
            "write jax.vmap for jax.pmap, which computes the same; or ",
        )
    return DeviceMeshError(
        f"`shard_map` over a mesh with the axes {dict(used.shape)}, and the meshes of the IPUs "
        f"have {dict(mesh.shape)}",
        where=line,
        fix="leave its `mesh` out: it is that of the IPU that computes it",
    )


def _device_mesh_error(statement: str, line: str, fix: str = "") -> DeviceMeshError:
    return DeviceMeshError(
        f"{statement} inside a compiled function, whose devices are the virtual IPUs",
        where=line,
        fix=f"{fix}give each IPU a mesh of devices (ipu.compile(meshes=ipu.meshes(...))), say with "
        "ipu.scopes.ipu_shard which IPU computes what, or let replicas share the work and add up "
        "with cross_replica_ops.cross_replica_sum; or do this outside of ipu.compile, under "
        "jax.jit",
    )
