"""The meshes of JAX devices on which IPUs run: one for each IPU of a device, all alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from ipujax.ground import Checks, DeviceMeshError
from lowering import ops

_check = Checks(DeviceMeshError, DeviceMeshError)


@_check.guard
def meshes(count: int, axes: Mapping[str, int]) -> tuple[Mesh, ...]:
    """Returns as many meshes as asked for, of JAX's devices in order.

    Args:
      count: meshes, one for each IPU of the device that programs run on.
      axes: the name and the size of each axis, such as `{"data": 2, "model": 2}`.

    Returns:
      Meshes for `ipu.compile(meshes=...)`. Their axes are of type Auto; no device is in two.

    Raises:
      DeviceMeshError: (a `ValueError`) sizes that are no positive integers, or fewer JAX devices
        than the meshes have.
    """
    _check.require_integer(count, "the number of meshes", at_least=1)
    if not isinstance(axes, Mapping):
        raise _check.type_error(
            f"the axes of ipu.meshes are a {type(axes).__name__}",
            'give a dict from names to sizes, such as {"data": 2}',
        )
    for name, size in axes.items():
        _check.require_text(name, "the name of a mesh's axis")
        _check.require_integer(size, f"the size of axis `{name}`", at_least=1)
    devices, size = jax.devices(), math.prod(axes.values())
    if count * size > len(devices):
        raise _check.value_error(
            f"{count} meshes of {size} devices are {count * size} devices, and JAX has "
            f"{len(devices)}",
            "make them smaller; on CPUs, set XLA_FLAGS="
            f"--xla_force_host_platform_device_count={count * size} before JAX is imported; or "
            "build meshes that share devices: jax.sharding.Mesh(devices, names)",
        )
    shape, types = tuple(axes.values()), (AxisType.Auto,) * len(axes)
    return tuple(
        Mesh(np.array(devices[n * size : (n + 1) * size]).reshape(shape), tuple(axes), types)
        for n in range(count)
    )


def check_meshes(meshes: Sequence[Mesh] | None) -> tuple[Mesh, ...]:
    """Returns the meshes of `ipu.compile` as a tuple, which is empty if there are none.

    Raises:
      DeviceMeshError: no sequence of meshes, meshes that differ in their axes, Explicit axes, or a
        mesh that has a device twice.
    """
    if meshes is None:
        return ()
    if isinstance(meshes, Mesh) or not isinstance(meshes, Sequence) or not meshes:
        raise _check.value_error(
            f"meshes={meshes!r} is no sequence of meshes",
            fix="give one jax.sharding.Mesh for each IPU, such as ipu.meshes(4, {'data': 2})",
        )
    for number, mesh in enumerate(meshes):
        if not isinstance(mesh, Mesh):
            raise _check.value_error(
                f"meshes[{number}] is a {type(mesh).__name__}", fix="give a jax.sharding.Mesh"
            )
        _check_mesh(number, mesh, meshes[0])
    return tuple(meshes)


def common_mesh(meshes: Sequence[Mesh], replicas: int = 1) -> AbstractMesh | None:
    """Returns the axes that all meshes have, as a mesh without devices; None without meshes.

    Args:
      meshes: those of the IPUs.
      replicas: how many replicas there are; several are one more axis, in front, of type Manual.
    """
    if not meshes:
        return None
    if replicas == 1:
        return meshes[0].abstract_mesh
    joined = join_replicas(meshes[:replicas]).abstract_mesh
    return joined.update_axis_types({ops.REPLICAS: AxisType.Manual})


def join_replicas(meshes: Sequence[Mesh]) -> Mesh:
    """Returns the mesh of all replicas of an IPU, along a first axis, from those of each."""
    devices, names = np.stack([mesh.devices for mesh in meshes]), meshes[0].axis_names
    types = (AxisType.Auto,) * (len(names) + 1)
    return Mesh(devices, (ops.REPLICAS, *names), types)


def _check_mesh(number: int, mesh: Mesh, first: Mesh) -> None:
    if dict(mesh.shape) != dict(first.shape) or mesh.axis_names != first.axis_names:
        raise _check.value_error(
            f"meshes[{number}] has the axes {dict(mesh.shape)}, and meshes[0] {dict(first.shape)}",
            fix="give all meshes the same axes, in the same order and of the same sizes",
        )
    if any(kind is not AxisType.Auto for kind in mesh.axis_types):
        raise _check.value_error(
            f"meshes[{number}] has the axis types {mesh.axis_types}, and those of IPUs are Auto: "
            "the types of Explicit ones would name devices in the program of all IPUs",
            fix="build it with axis_types=(jax.sharding.AxisType.Auto, ...), or by ipu.meshes",
        )
    devices = list(mesh.devices.flat)
    if twice := [device for device in set(devices) if devices.count(device) > 1]:
        raise _check.value_error(
            f"meshes[{number}] has {twice[0]} twice",
            fix="name each device once within a mesh; other meshes may have it, too",
        )


def check_mesh_count(meshes: Sequence[Mesh], num_ipus: int, device: str) -> None:
    """Raises an error if there are not as many meshes as a device has IPUs.

    Raises:
      DeviceMeshError: otherwise.
    """
    if meshes and len(meshes) != num_ipus:
        raise _check.value_error(
            f"{len(meshes)} meshes were given, and {device} has {num_ipus} "
            f"IPU{'s' * (num_ipus != 1)}",
            fix=f"give {num_ipus} meshes, one for each IPU, replica after replica; or set "
            f"IPUConfig.auto_select_ipus = {len(meshes)}",
        )
