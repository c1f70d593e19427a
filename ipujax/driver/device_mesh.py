"""Refuses to run compiled functions under a mesh of JAX devices that is not their own."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.sharding import Mesh

from ipujax.ground import DeviceMeshError


def refuse_ambient_mesh(name: str, meshes: Sequence[Mesh] = ()) -> None:
    """Raises an error if `jax.set_mesh` has set a mesh of several JAX devices.

    Args:
      name: the name of the program.
      meshes: those of its IPUs; a mesh with the same axes may be set.

    Raises:
      DeviceMeshError: such a mesh is set.
    """
    mesh = jax.sharding.get_abstract_mesh()
    is_common = bool(meshes) and dict(mesh.shape) == dict(meshes[0].shape)
    if not mesh.empty and mesh.size > 1 and not is_common:
        raise DeviceMeshError(
            f"`{name}` is compiled for virtual IPUs, and jax.set_mesh has set a mesh of "
            f"{mesh.size} JAX devices for all code",
            fix="call it outside of `with jax.set_mesh(...)`; its arguments may be sharded, and "
            "its results can be put where they are wanted by jax.device_put",
        )
