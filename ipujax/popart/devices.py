"""Devices of sessions: virtual IPUs, however they are asked for."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from ipujax.config import IPUConfig
from ipujax.popart.checks import check
from ipujax.system.devices import SYSTEM

_DEVICE = "/device:IPU:0"

_own: list[object] = []  # the configuration that was made here last


class DeviceType(enum.Enum):
    """What a device was in the original; here all are virtual IPUs."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceInfo:
    """A device that sessions run on.

    Attributes:
      type: as what it was asked for.
      numIpus: IPUs that it has; None for as many as are needed.
    """

    def __init__(self, type: DeviceType, numIpus: int | None):
        self.type, self.numIpus = type, numIpus
        self.isAttached = False

    def attach(self) -> bool:
        """Takes it."""
        self.isAttached = True
        return True

    def detach(self) -> None:
        """Gives it back."""
        self.isAttached = False

    def __enter__(self) -> DeviceInfo:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


class DeviceManager:
    """Gives devices."""

    def createCpuDevice(self) -> DeviceInfo:
        """A device of as many virtual IPUs as a session needs."""
        return DeviceInfo(DeviceType.Cpu, None)

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A device of `options["numIPUs"]` virtual IPUs, 1 by default."""
        count = check.integer(options.get("numIPUs", 1), "numIPUs", at_least=1)
        return DeviceInfo(DeviceType.IpuModel, count)

    def acquireAvailableDevice(self, numIpus: int = 1) -> DeviceInfo:
        """A device of so many virtual IPUs."""
        return DeviceInfo(DeviceType.Ipu, check.integer(numIpus, "numIpus", at_least=1))


def provide(replicas: int, ipus: int, device: DeviceInfo) -> None:
    """Has the system have what a session needs; see `ipujax.poptorch.devices.provide`.

    Raises:
      PopARTError: (a `ValueError`) the device, or the user's configuration, has fewer IPUs.
    """
    each = 1 << (ipus - 1).bit_length()
    needed = 1 << (replicas * each - 1).bit_length()
    if device.numIpus is not None and device.numIpus < replicas * ipus:
        raise check.refuse(
            f"{replicas} replicas of {ipus} IPUs need {replicas * ipus}, and the device has "
            f"{device.numIpus}",
            f"ask for a device of {needed} IPUs",
        )
    there = SYSTEM.device(_DEVICE).num_ipus
    if SYSTEM.configured and SYSTEM.generation not in _own:
        if there < needed:
            raise check.refuse(
                f"the session needs {needed} IPUs, and {_DEVICE} has {there}",
                f"set IPUConfig.auto_select_ipus = {needed}, or leave the system unconfigured",
            )
        return
    config = IPUConfig()
    config.auto_select_ipus = max(needed, there)
    SYSTEM.configure(config)
    _own[:] = [SYSTEM.generation]
