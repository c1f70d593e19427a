"""Targets and devices: the virtual IPUs that graphs are made for."""

from __future__ import annotations

import dataclasses as dc
import enum

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check
from ipujax.system import targets

_TARGETS = {"ipu1": targets.IPU1, "ipu2": targets.IPU2, "ipu21": targets.IPU21}
VECTOR_BYTES = 8


class TargetType(enum.Enum):
    """The kind of a target."""

    CPU = 0
    IPU = 1
    IPU_MODEL = 2


@dc.dataclass(frozen=True, slots=True)
class Target:
    """The IPUs that a graph is made for.

    Attributes:
      version: the chip, "ipu1", "ipu2" or "ipu21".
      ipus: the number of IPUs.
      tiles: the number of tiles of each that a graph may use.
      type: the kind of target.
    """

    version: str
    ipus: int
    tiles: int
    type: TargetType

    @property
    def chip(self) -> targets.Target:
        """The chip with as many tiles, for the machine model."""
        return dc.replace(_TARGETS[self.version], tiles_per_ipu=self.tiles)

    @property
    def as_one_chip(self) -> targets.Target:
        """A chip with the tiles of all IPUs, on which the model runs programs for several."""
        return dc.replace(self.chip, tiles_per_ipu=self.getNumTiles())

    def getNumTiles(self) -> int:
        """Returns the number of tiles of all IPUs."""
        return self.ipus * self.tiles

    def getNumIPUs(self) -> int:
        """Returns the number of IPUs."""
        return self.ipus

    def getTilesPerIPU(self) -> int:
        """Returns the number of tiles of one IPU."""
        return self.tiles

    def getNumWorkerContexts(self) -> int:
        """Returns the number of a tile's workers, its hardware threads."""
        return self.chip.workers

    def getBytesPerTile(self) -> int:
        """Returns the bytes of a tile's memory."""
        return self.chip.bytes_per_tile

    def getExchangeBytesPerCycle(self) -> int:
        """Returns the bytes that a tile receives per cycle."""
        return self.chip.exchange_bytes

    def getDataPathWidth(self) -> int:
        """Returns the number of bits of a vector."""
        return 8 * VECTOR_BYTES

    def getVectorWidth(self, type: Type) -> int:
        """Returns how many elements of a type a vector has."""
        return max(1, VECTOR_BYTES // require_type(type, "type").size)

    def getFloatVectorWidth(self) -> int:
        """Returns how many floats a vector has."""
        return self.getDataPathWidth() // 32

    def getHalfVectorWidth(self) -> int:
        """Returns how many halves a vector has."""
        return self.getDataPathWidth() // 16

    def getMemoryBytes(self) -> int:
        """Returns the bytes of all tiles' memory."""
        return self.getBytesPerTile() * self.getNumTiles()

    def getTypeSize(self, type: Type) -> int:
        """Returns the bytes of one element of a type."""
        return require_type(type, "type").size

    def getTileClockFrequency(self) -> float:
        """Returns the clock's cycles per second."""
        return self.chip.clock_hz

    def getTargetType(self) -> TargetType:
        """Returns the kind of target."""
        return self.type


@check.guard
class Device:
    """A device of virtual IPUs."""

    def __init__(self, target: Target, id: int = 0):
        self._target, self._id = target, id

    def getTarget(self) -> Target:
        """Returns the device's target, which graphs are made for."""
        return self._target

    def getId(self) -> int:
        """Returns the device's number."""
        return self._id

    def createVirtualDevice(self, tilesPerIPU: int) -> Device:
        """Returns a device of the same IPUs with fewer tiles each, their first ones."""
        tiles = check.require_integer(tilesPerIPU, "tilesPerIPU", at_least=1)
        if tiles > self._target.tiles:
            raise check.value_error(
                f"tilesPerIPU is {tiles}", f"the IPUs have {self._target.tiles} tiles each"
            )
        return Device(dc.replace(self._target, tiles=tiles), self._id)

    def supportsRemoteBuffers(self) -> bool:
        """Returns True: graphs may have remote buffers."""
        return True

    def attach(self) -> bool:
        """Returns True: a virtual device can always be attached."""
        return True

    def detach(self) -> None:
        """Does nothing: a virtual device holds no hardware."""


@check.guard
class IPUModel:
    """A description of virtual IPUs, without C++'s attributes for the delays of syncs.

    Attributes:
      numIPUs: the number of IPUs.
      tilesPerIPU: the number of tiles of each.
    """

    __slots__ = ("_version", "numIPUs", "tilesPerIPU")

    def __init__(self, version: str = "ipu2"):
        if version not in _TARGETS:
            raise check.value_error(
                f"there is no IPU version {version!r}", f"give one of {', '.join(_TARGETS)}"
            )
        self._version = version
        self.numIPUs = 1
        self.tilesPerIPU = _TARGETS[version].tiles_per_ipu

    def createDevice(self) -> Device:
        """Returns a device of these IPUs."""
        return Device(_make_target(self._version, self.numIPUs, self.tilesPerIPU, is_model=True))


@check.guard
class DeviceManager:
    """A source of devices: virtual IPUs of the second generation."""

    @classmethod
    def createDeviceManager(cls) -> DeviceManager:
        """Returns a device manager."""
        return cls()

    def getDevices(self, type: TargetType = TargetType.IPU, numIpus: int = 1) -> list[Device]:
        """Returns a list of one device with so many IPUs."""
        check.require_instance(type, TargetType, "type")
        return [self.acquireAvailableDevice(numIpus)]

    def acquireAvailableDevice(self, numIpus: int = 1) -> Device:
        """Returns a device with so many IPUs."""
        return Device(_make_target("ipu2", numIpus, _TARGETS["ipu2"].tiles_per_ipu, is_model=False))


def _make_target(version: str, ipus: int, tiles: int, *, is_model: bool) -> Target:
    check.require_integer(tiles, "tilesPerIPU", at_least=1)
    check.require_integer(ipus, "numIPUs", at_least=1)
    return Target(version, ipus, tiles, TargetType.IPU_MODEL if is_model else TargetType.IPU)
