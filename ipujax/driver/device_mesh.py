"""Refuses to run compiled functions under a mesh of JAX devices set with `jax.set_mesh`."""

from __future__ import annotations

import jax

from ipujax.ground import DeviceMeshError


def refuse_mesh(name: str) -> None:
    """Raises an error if `jax.set_mesh` has set a mesh of several JAX devices.

    Args:
      name: the name of the program.

    Raises:
      DeviceMeshError: such a mesh is set.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and mesh.size > 1:
        raise DeviceMeshError(
            f"`{name}` is compiled for virtual IPUs, and jax.set_mesh has set a mesh of "
            f"{mesh.size} JAX devices for all code",
            fix="call it outside of `with jax.set_mesh(...)`; its arguments may be sharded, and "
            "its results can be put where they are wanted by jax.device_put",
        )
