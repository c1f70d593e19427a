"""Devices of sessions: virtual IPUs, however they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ipujax.config import IPUConfig
from ipujax.driver import executable_cache
from ipujax.popart.checks import check
from ipujax.popart.numbered import NumberedEnum
from ipujax.popart.options import SyncPattern
from ipujax.system.device_ids import DEVICES
from ipujax.system.devices import SYSTEM

_DEVICE = "/device:IPU:0"
_TILES = 1472
_WORKERS = 6
_MOST_IPUS = 1024

_own: list[object] = []  # the configuration that was made here last
_ids = itertools.count()


class DeviceType(NumberedEnum):
    """What a device was in the original; here all are virtual IPUs."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4

    def __str__(self) -> str:
        return self.name


class DeviceConnectionType(NumberedEnum):
    """When a device was attached to; here it is always there."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(NumberedEnum):
    """Which of several devices was taken; here they are alike."""

    First = 0
    Random = 1


@check.guard
class DeviceInfo:
    """A device that sessions run on.

    Attributes:
      type: as what it was asked for.
      numIpus: IPUs that it has; a CPU device has as many as are needed, and says 1.
      connectionType: as it was asked for; a session on a device that is Never connected compiles.
      id: a number of its own.
      isAttached: whether it is held.
      tilesPerIPU, tilesPerIpu: as they were asked for, or those of a Mk2 IPU.
      numWorkerContexts: threads of a tile.
      driverIds: none, as there is no driver.
      version, ipuVersion: `ipu2`.
    """

    def __init__(
        self,
        type: DeviceType,
        numIpus: int | None,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
        id: int | None = None,
    ):
        self.type, self.limit = type, numIpus
        self.numIpus = numIpus or 1
        self.connectionType = check.instance(connectionType, DeviceConnectionType, "connectionType")
        self.tilesPerIPU = check.integer(tilesPerIPU, "tilesPerIPU", at_least=0) or _TILES
        self.id = next(_ids) if id is None else check.integer(id, "id", at_least=0)
        self.isAttached = connectionType is DeviceConnectionType.Always
        self.numWorkerContexts, self.version, self.ipuVersion = _WORKERS, "ipu2", "ipu2"
        self.driverIds: list[int] = []

    @property
    def tilesPerIpu(self) -> int:
        """As `tilesPerIPU`."""
        return self.tilesPerIPU

    def attach(self) -> bool:
        """Takes it; False for one that is never connected."""
        self.isAttached = self.connectionType is not DeviceConnectionType.Never
        return self.isAttached

    def tryAttachUntilTimeout(self) -> bool:
        """As `attach`; nobody has to wait."""
        return self.attach()

    def detach(self) -> None:
        """Gives it back."""
        self.isAttached = False

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"DeviceInfo(type={self.type}, id={self.id}, numIpus={self.numIpus})"


@check.guard
class DeviceManager:
    """Gives devices."""

    def createCpuDevice(self) -> DeviceInfo:
        """A device of as many virtual IPUs as a session needs."""
        return DeviceInfo(DeviceType.Cpu, None)

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A device of `options["numIPUs"]` virtual IPUs, 1 by default."""
        return self._made(DeviceType.IpuModel, options)

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """As `createIpuModelDevice`: there is no other simulation."""
        return self._made(DeviceType.Sim, options)

    def createOfflineIPUDevice(self, opts: Mapping[str, Any]) -> DeviceInfo:
        """A device that sessions compile for."""
        return self._made(DeviceType.OfflineIpu, opts)

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        """A device like another that sessions compile for."""
        like = check.instance(deviceInfo, DeviceInfo, "deviceInfo")
        options = {"numIPUs": like.numIpus, "tilesPerIPU": like.tilesPerIPU}
        return self._made(DeviceType.OfflineIpu, options)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """A device that sessions compile for; of the system only the IPUs count."""
        check.text(system, "the system")
        return self._made(DeviceType.OfflineIpu, {"numIPUs": numIpus})

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """A device of so many virtual IPUs.

        Raises:
          PopARTError: (a `ValueError`) more IPUs than a system can have.
        """
        check.instance(pattern, SyncPattern, "pattern")
        check.instance(selectionCriterion, DeviceSelectionCriterion, "selectionCriterion")
        count = check.integer(numIpus, "numIpus", at_least=1)
        if count > _MOST_IPUS:
            raise check.refuse(
                f"Failed to acquire device with {count} IPUs", f"ask for at most {_MOST_IPUS}"
            )
        return DeviceInfo(DeviceType.Ipu, count, connectionType, tilesPerIpu)

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """As `acquireAvailableDevice`, with None where there is no such device."""
        if check.integer(numIpus, "numIpus", at_least=1) > _MOST_IPUS:
            return None
        return self.acquireAvailableDevice(
            numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion
        )

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """A device with this number, of the virtual IPUs that `gc-info -l` shows for it.

        Of numbers that are not listed, the device has one IPU.
        """
        check.instance(pattern, SyncPattern, "pattern")
        listed = check.integer(id, "id", at_least=0) < len(DEVICES)
        count = len(DEVICES[id].ipus) if listed else 1
        return DeviceInfo(DeviceType.Ipu, count, connectionType, id=id)

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """As `acquireDeviceById`, which always finds one."""
        return self.acquireDeviceById(id, pattern, connectionType)

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """The devices that there are of a kind: one."""
        check.instance(pattern, SyncPattern, "pattern")
        check.instance(deviceType, DeviceType, "deviceType")
        count = check.integer(numIpus, "numIpus", at_least=1)
        return [DeviceInfo(deviceType, count, connectionType, tilesPerIPU)]

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Changes nothing: nobody has to wait for virtual IPUs."""
        check.integer(attachTimeout, "attachTimeout", at_least=0)

    def _made(self, kind: DeviceType, options: Mapping[str, Any]) -> DeviceInfo:
        check.instance(options, Mapping, "the options of a device")
        counts = {
            name: check.integer(_written(options[name]), name, at_least=at_least)
            for name, at_least in (("numIPUs", 1), ("tilesPerIPU", 0))
            if name in options
        }
        never = DeviceConnectionType.Never
        connection = never if kind is DeviceType.OfflineIpu else DeviceConnectionType.Always
        return DeviceInfo(kind, counts.get("numIPUs", 1), connection, counts.get("tilesPerIPU", 0))


def _written(count: Any) -> Any:
    """A count, which the options of devices may have as a text."""
    return int(count) if isinstance(count, str) and count.isdecimal() else count


def provide(
    replicas: int, ipus: int, device: DeviceInfo, config: IPUConfig, cache: str | None
) -> None:
    """Has the system have what a session needs; see `ipujax.poptorch.devices.provide`.

    Args:
      replicas: how many there are.
      ipus: of each.
      device: the user's.
      config: what the session's options ask for; a system that the user configured stays as it is.
      cache: the folder that compiled programs are kept in.

    Raises:
      PopARTError: (a `ValueError`) the device, or the user's configuration, has fewer IPUs.
    """
    each = 1 << (ipus - 1).bit_length()
    needed = 1 << (replicas * each - 1).bit_length()
    if device.limit is not None and device.limit < replicas * ipus:
        raise check.refuse(
            f"{replicas} replicas of {ipus} IPUs need {replicas * ipus}, and the device has "
            f"{device.limit}",
            f"ask for a device of {needed} IPUs",
        )
    there = SYSTEM.device(_DEVICE).num_ipus
    if SYSTEM.configured and SYSTEM.generation not in _own:
        if there < needed:
            raise check.refuse(
                f"the session needs {needed} IPUs, and {_DEVICE} has {there}",
                f"set IPUConfig.auto_select_ipus = {needed}, or leave the system unconfigured",
            )
    else:
        config.auto_select_ipus = max(needed, there)
        SYSTEM.configure(config)
        _own[:] = [SYSTEM.generation]
    executable_cache.keep_in(cache)
