"""The virtual IPUs that sessions run on, and the device manager that hands them out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ipujax.driver import executable_cache
from ipujax.popart.numbered_enum import NumberedEnum
from ipujax.popart.options import SyncPattern
from ipujax.popart.popart_checks import check
from ipujax.system import SYSTEM, IPUConfig, find_machine, most_ipus

_DEVICE = "/device:IPU:0"
_TILES = 1472
_WORKERS = 6

_last_generation: list[object] = []  # the configuration that was made here last
_ids = itertools.count()


class DeviceType(NumberedEnum):
    """The kind of device that a script asks for; here all are virtual IPUs."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4

    def __str__(self) -> str:
        return self.name


class DeviceConnectionType(NumberedEnum):
    """The choice of when a session attaches to its device; here it is always there."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(NumberedEnum):
    """The choice among several devices; here all are alike."""

    First = 0
    Random = 1


@check.guard
class DeviceInfo:
    """A device that sessions run on.

    Attributes:
      type: the kind of device that was asked for.
      numIpus: the number of its IPUs; a CPU device has as many as are needed, and says 1.
      connectionType: the type that was asked for; with Never a session compiles only.
      id: the id of the device.
      isAttached: whether the device is attached.
      tilesPerIPU, tilesPerIpu: the number that was asked for, or that of a Mk2 IPU.
      numWorkerContexts: the number of worker threads of a tile.
      driverIds: an empty list, as there is no driver.
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
        self.connectionType = check.require_instance(
            connectionType, DeviceConnectionType, "connectionType"
        )
        self.tilesPerIPU = check.require_integer(tilesPerIPU, "tilesPerIPU", at_least=0) or _TILES
        self.id = next(_ids) if id is None else check.require_integer(id, "id", at_least=0)
        self.isAttached = connectionType is DeviceConnectionType.Always
        self.numWorkerContexts, self.version, self.ipuVersion = _WORKERS, "ipu2", "ipu2"
        self.driverIds: list[int] = []

    @property
    def tilesPerIpu(self) -> int:
        """The number of tiles of an IPU, as `tilesPerIPU`."""
        return self.tilesPerIPU

    def attach(self) -> bool:
        """Attaches to the device; returns False if its connection type is Never."""
        self.isAttached = self.connectionType is not DeviceConnectionType.Never
        return self.isAttached

    def tryAttachUntilTimeout(self) -> bool:
        """Attaches to the device, as `attach`, without any waiting."""
        return self.attach()

    def detach(self) -> None:
        """Detaches from the device."""
        self.isAttached = False

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"DeviceInfo(type={self.type}, id={self.id}, numIpus={self.numIpus})"


# Programs replace methods of `DeviceManager` by functions of theirs that call other ones, so none
# of these calls another.
def _find_available_device(
    numIpus: int,
    tilesPerIpu: int,
    pattern: SyncPattern,
    connectionType: DeviceConnectionType,
    selectionCriterion: DeviceSelectionCriterion,
) -> DeviceInfo | None:
    """Returns a device of some number of virtual IPUs, or None for more than a system has."""
    check.require_instance(pattern, SyncPattern, "pattern")
    check.require_instance(selectionCriterion, DeviceSelectionCriterion, "selectionCriterion")
    count = check.require_integer(numIpus, "numIpus", at_least=1)
    if count > most_ipus():
        return None
    return DeviceInfo(DeviceType.Ipu, count, connectionType, tilesPerIpu)


def _find_device_by_id(
    id: int, pattern: SyncPattern, connectionType: DeviceConnectionType
) -> DeviceInfo:
    """Returns the device with an id, of as many virtual IPUs as `gc-info -l` lists for it."""
    check.require_instance(pattern, SyncPattern, "pattern")
    devices = find_machine().devices
    is_listed = check.require_integer(id, "id", at_least=0) < len(devices)
    count = len(devices[id].ipus) if is_listed else 1
    return DeviceInfo(DeviceType.Ipu, count, connectionType, id=id)


@check.guard
class DeviceManager:
    """A factory of devices."""

    def createCpuDevice(self) -> DeviceInfo:
        """Creates a device of as many virtual IPUs as a session needs."""
        return DeviceInfo(DeviceType.Cpu, None)

    def createIpuModelDevice(self, options: Mapping[str, object]) -> DeviceInfo:
        """Creates a device of `options["numIPUs"]` virtual IPUs, 1 by default."""
        return self._create_device(DeviceType.IpuModel, options)

    def createSimDevice(self, options: Mapping[str, object]) -> DeviceInfo:
        """Creates a device as `createIpuModelDevice` does: there is no other simulation."""
        return self._create_device(DeviceType.Sim, options)

    def createOfflineIPUDevice(self, opts: Mapping[str, object]) -> DeviceInfo:
        """Creates a device that sessions can only compile for."""
        return self._create_device(DeviceType.OfflineIpu, opts)

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        """Creates a device like another one that sessions can only compile for."""
        template = check.require_instance(deviceInfo, DeviceInfo, "deviceInfo")
        options = {"numIPUs": template.numIpus, "tilesPerIPU": template.tilesPerIPU}
        return self._create_device(DeviceType.OfflineIpu, options)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """Creates a device that sessions can only compile for, of some number of IPUs."""
        check.require_text(system, "the system")
        return self._create_device(DeviceType.OfflineIpu, {"numIPUs": numIpus})

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """Acquires a device of some number of virtual IPUs.

        Raises:
          PopARTError: (a `ValueError`) more IPUs than a system can have.
        """
        device = _find_available_device(
            numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion
        )
        if device is None:
            raise check.value_error(
                f"Failed to acquire device with {numIpus} IPUs", f"ask for at most {most_ipus()}"
            )
        return device

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """Acquires a device as `acquireAvailableDevice`; returns None if there is none."""
        return _find_available_device(
            numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion
        )

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """Acquires a device by its id, with the virtual IPUs that `gc-info -l` lists for it.

        A device with an id that is not listed has one IPU.
        """
        return _find_device_by_id(id, pattern, connectionType)

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """Acquires a device as `acquireDeviceById`, which always succeeds."""
        return _find_device_by_id(id, pattern, connectionType)

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Returns a list of one device of the kind that is asked for."""
        check.require_instance(pattern, SyncPattern, "pattern")
        check.require_instance(deviceType, DeviceType, "deviceType")
        count = check.require_integer(numIpus, "numIpus", at_least=1)
        return [DeviceInfo(deviceType, count, connectionType, tilesPerIPU)]

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Changes nothing: nobody has to wait for virtual IPUs."""
        check.require_integer(attachTimeout, "attachTimeout", at_least=0)

    def _create_device(self, kind: DeviceType, options: Mapping[str, object]) -> DeviceInfo:
        check.require_instance(options, Mapping, "the options of a device")
        counts = {
            name: check.require_integer(_parse_count(options[name]), name, at_least=at_least)
            for name, at_least in (("numIPUs", 1), ("tilesPerIPU", 0))
            if name in options
        }
        never = DeviceConnectionType.Never
        connection = never if kind is DeviceType.OfflineIpu else DeviceConnectionType.Always
        return DeviceInfo(kind, counts.get("numIPUs", 1), connection, counts.get("tilesPerIPU", 0))


def _parse_count(count: object) -> Any:
    """Converts a count that the options of a device hold as text."""
    return int(count) if isinstance(count, str) and count.isdecimal() else count


def configure_ipus_for_session(
    replicas: int, ipus: int, device: DeviceInfo, config: IPUConfig, cache: str | None
) -> None:
    """Configures the system's IPUs for a session; see `ipujax.poptorch.poptorch_devices`.

    Args:
      replicas: the number of replicas.
      ipus: the IPUs of each replica.
      device: the user's device.
      config: the configuration by the session's options; a configuration of the user's own stays.
      cache: the folder that compiled programs are kept in.

    Raises:
      PopARTError: (a `ValueError`) the device, or the user's configuration, has fewer IPUs.
    """
    ipus_per_replica = 1 << (ipus - 1).bit_length()
    needed = 1 << (replicas * ipus_per_replica - 1).bit_length()
    if device.limit is not None and device.limit < replicas * ipus:
        raise check.value_error(
            f"{replicas} replicas of {ipus} IPUs need {replicas * ipus}, and the device has "
            f"{device.limit}",
            f"ask for a device of {needed} IPUs",
        )
    available = SYSTEM.device(_DEVICE).num_ipus
    if SYSTEM.is_configured and SYSTEM.generation not in _last_generation:
        if available < needed:
            raise check.value_error(
                f"the session needs {needed} IPUs, and {_DEVICE} has {available}",
                f"set IPUConfig.auto_select_ipus = {needed}, or leave the system unconfigured",
            )
    else:
        config.auto_select_ipus = max(needed, available)
        SYSTEM.configure(config)
        _last_generation[:] = [SYSTEM.generation]
    executable_cache.set_cache_folder(cache)
