"""The IPU as a JAX device, as TessellateIPU's version of JAX had it."""

from __future__ import annotations

import dataclasses as dc
import enum
import functools

from ipujax.poplar import IPUModel
from ipujax.tessellate.exceptions import check


class IpuTargetType(enum.Enum):
    """The kind of a device: hardware, the host, or the IPU Model."""

    IPU = 0
    CPU = 1
    IPU_MODEL = 2


@dc.dataclass(frozen=True)
class IpuDevice:
    """A virtual IPU, which stands for hardware.

    Attributes:
      id: its number.
      num_tiles: the tiles that programs may use.
      num_worker_contexts: the threads of a tile.
      target_type: what it stands for.
      platform: its name for `jax.jit`.
    """

    id: int
    num_tiles: int
    num_worker_contexts: int
    target_type: IpuTargetType = IpuTargetType.IPU
    platform: str = "ipu"

    @property
    def is_ipu_model(self) -> bool:
        """True if it stands for the IPU Model."""
        return self.target_type is IpuTargetType.IPU_MODEL


@functools.cache
def ipu_devices() -> list[IpuDevice]:
    """Returns the devices of `jax.devices("ipu")`: one."""
    target = IPUModel().createDevice().getTarget()
    return [IpuDevice(0, target.getNumTiles(), target.getNumWorkerContexts())]


@check.guard
def is_ipu_model(device: IpuDevice) -> bool:
    """Returns whether a device stands for the IPU Model."""
    return device.is_ipu_model
