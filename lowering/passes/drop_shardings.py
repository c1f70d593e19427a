"""The removal of JAX devices from a program: virtual IPUs take their place."""

from __future__ import annotations

import jax

from lowering.ground import DeviceMeshError
from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    call_body,
    rewrite_equations,
    sub_jaxprs,
    user_line,
)

_PLACES = (jax.sharding.Sharding, jax.Device)


def drop_shardings(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Removes the shardings that say on which JAX devices arrays are, at any depth.

    Before: no `shard_map` is over a single device.
    After:  no sharding constraint, no transfer to a device, no jit with shardings: none of them
            changes a number.
    Raises: DeviceMeshError: a `shard_map` (as `pmap` is one); values whose types name devices
            (meshes with axes of type Explicit).
    """
    names_devices = EquationFinder(_names_devices)
    _refuse_device_meshes(closed.jaxpr, names_devices, "")
    return rewrite_equations(closed, names_devices, _drop_sharding)


def _drop_sharding(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    body = call_body(eqn)
    if body is None:
        rewriter.replace_by_function(eqn, lambda *arrays: arrays)
    else:
        rewriter.replace_by_jaxpr(eqn, body)


def _names_devices(eqn: JaxprEqn) -> bool:
    if any(_is_explicit(var.aval) for var in eqn.outvars):
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


def _is_explicit(aval: Aval) -> bool:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return mesh is not None and jax.sharding.AxisType.Explicit in mesh.axis_types


def _refuse_device_meshes(jaxpr: Jaxpr, names_devices: EquationFinder, outer_line: str) -> None:
    """Refuses device meshes; `outer_line` is the line of the equation around the jaxpr."""
    for eqn in jaxpr.eqns:
        line = user_line(eqn) or outer_line
        if names_devices.occurs_inside(eqn):
            for body in sub_jaxprs(eqn):
                _refuse_device_meshes(body, names_devices, line)
        if any(_is_explicit(var.aval) for var in eqn.outvars):
            raise _device_mesh_error(
                f"`{eqn.primitive.name}` makes a value that is spread over JAX devices by its "
                "type (a mesh with axes of type Explicit)",
                line,
                "use a mesh with axes of type Auto, whose shardings are left out; or ",
            )
        if eqn.primitive.name == "shard_map":
            size = eqn.params["mesh"].size
            raise _device_mesh_error(
                f"`shard_map` (or `pmap`) over a mesh of {size} JAX devices", line
            )


def _device_mesh_error(statement: str, line: str, fix: str = "") -> DeviceMeshError:
    return DeviceMeshError(
        f"{statement} inside a compiled function, whose devices are the virtual IPUs",
        where=line,
        fix=f"{fix}say with ipu.scopes.ipu_shard which IPU computes what, or let replicas share "
        "the work and add up with cross_replica_ops.cross_replica_sum; or do this outside of "
        "ipu.compile, under jax.jit",
    )
