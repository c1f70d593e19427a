"""The meshes of JAX devices that run a program's IPUs, as a report names them."""

from __future__ import annotations

import dataclasses as dc
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what shows reports needs no JAX
    from jax.sharding import Mesh


_NUMBERED = re.compile(r"(.*):([0-9]+)")


@dc.dataclass(frozen=True, slots=True)
class DeviceMesh:
    """The mesh of JAX devices that runs one IPU.

    Attributes:
      replica: the replica of the IPU.
      ipu: the IPU within its replica.
      axes: the names of the axes.
      sizes: the size of each axis.
      devices: the names of the devices, such as `cpu:0`, with the last axis running fastest.
    """

    replica: int
    ipu: int
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.sizes) or math.prod(self.sizes) != len(self.devices):
            raise ValueError(
                f"a mesh of {len(self.devices)} devices has the axes {self.axes} of the sizes "
                f"{self.sizes}"
            )

    def __str__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in zip(self.axes, self.sizes, strict=True))
        return f"mesh {axes} of {format_device_names(self.devices)}"


def describe_device_meshes(
    meshes: Sequence[Mesh], ipus: int, replicas: int
) -> tuple[DeviceMesh, ...]:
    """Describes the meshes of a program's IPUs, replica after replica; () without meshes."""
    if not meshes:
        return ()
    return tuple(
        DeviceMesh(
            replica=replica,
            ipu=ipu,
            axes=tuple(map(str, mesh.axis_names)),
            sizes=tuple(mesh.devices.shape),
            devices=tuple(f"{device.platform}:{device.id}" for device in mesh.devices.flat),
        )
        for replica in range(replicas)
        for ipu, mesh in enumerate(meshes[replica * ipus : (replica + 1) * ipus])
    )


def format_device_names(names: Sequence[str]) -> str:
    """Formats the names of devices as `cpu:0..3, cpu:6`, in the given order."""
    groups: list[tuple[str, str]] = []
    for name in names:
        if groups and _is_next_device(groups[-1][1], name):
            groups[-1] = groups[-1][0], name
        else:
            groups.append((name, name))
    return ", ".join(
        first if first == last else f"{first}..{last.rpartition(':')[2]}" for first, last in groups
    )


def _is_next_device(name: str, other: str) -> bool:
    """Returns whether two devices are of one platform and have consecutive numbers."""
    first, second = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(other)
    if first is None or second is None or first[1] != second[1]:
        return False
    return int(first[2]) + 1 == int(second[2])
