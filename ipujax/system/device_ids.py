"""The machines that the virtual system stands for: their IPUs and the ways to group them.

Pure data and arithmetic, importable without JAX. The default is a machine of 16 IPUs, whose listing
is that of "Targeting the IPU from TensorFlow", `select_ipus`. Pods, and partitions of them, are
listed as in "Graphcore Command Line Tools", gc-info, on an IPU Pod system: ids go up along the
IPU-Machines, and the IPUs of each from 3 to 0.
"""

from __future__ import annotations

import dataclasses
import functools
import os

from ipujax.ground import DeviceError
from ipujax.system.config_enums import SelectionOrder

PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"
SIZE_VARIABLE = "IPUJAX_PARTITION_SIZE"
_PODS = (64, 128, 256)
_SIZES = tuple(1 << power for power in range(9))


@dataclasses.dataclass(frozen=True)
class Ipu:
    """One physical IPU.

    Attributes:
      index: its PCIe id, which is also its id in the listing.
      pci_domain: its address; "" in a pod.
      ipu_machine: the IPU-Machine of a pod that holds it; "" outside of pods.
    """

    index: int
    pci_domain: str = ""
    ipu_machine: str = ""

    @property
    def number_in_machine(self) -> int:
        """The number of the IPU in its IPU-Machine, 0 to 3."""
        return 3 - self.index % 4

    @property
    def address(self) -> str:
        """The PCI address of the IPU, or its IPU-Machine and number there, for messages."""
        return self.pci_domain or f"{self.ipu_machine} IPU {self.number_in_machine}"


@dataclasses.dataclass(frozen=True)
class ListedDevice:
    """One line of `gc-info -l`: an IPU, or a group of linked ones.

    Attributes:
      id: the number to select it by.
      ipus: its IPUs; the position is the DNC id.
    """

    id: int
    ipus: tuple[Ipu, ...]


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine of 16 IPUs, a pod, or a partition of one, as `gc-info -l` lists it.

    Attributes:
      partition: its name.
      ipus: all of its IPUs, by id.
      devices: the devices, by id.
    """

    partition: str
    ipus: tuple[Ipu, ...]
    devices: tuple[ListedDevice, ...]

    def device_with_id(self, id: int) -> ListedDevice:
        """Returns the device with an id.

        Raises:
          DeviceError: there is none.
        """
        if 0 <= id < len(self.devices):
            return self.devices[id]
        larger = f"; {SIZE_VARIABLE}=64 gives a pod of 64 IPUs" if len(self.ipus) == 16 else ""
        raise DeviceError(
            f"there is no device with id {id}; ids go from 0 to {len(self.devices) - 1}, see "
            f"`gc-info -l`{larger}"
        )

    def find_free_device(self, count: int, used_ipus: set[int]) -> ListedDevice:
        """Returns the device to use for a number of IPUs, from 1 to all of the machine.

        Args:
          count: how many IPUs are wanted.
          used_ipus: the indices of IPUs that other devices have.

        Returns:
          The first of the smallest large enough devices whose first `count` IPUs are free, or, if
          none is, the first of them all.
        """
        size = 1 << (count - 1).bit_length()
        candidates = [device for device in self.devices if len(device.ipus) == size]
        for device in candidates:
            if used_ipus.isdisjoint(ipu.index for ipu in device.ipus[:count]):
                return device
        return candidates[0]

    def format_listing(self) -> str:
        """Returns the text that `gc-info -l` prints."""
        return "\n".join(_list_pod(self) if self.ipus[0].ipu_machine else _list_pcie(self))


_PCI_BUSES = "1a 1b 23 24 3d 3e 43 44 8b 8c 8e 8f b8 b9 ba bb".split()

# The DNC ids of the machine of 16. Every smaller group is an aligned slice of it.
_DNC_ORDER = (5, 7, 4, 6, 3, 1, 2, 0, 13, 15, 12, 14, 9, 11, 10, 8)


def read_partition_size() -> int | None:
    """Returns how many IPUs the user's partition has, or None where nobody says.

    Raises:
      DeviceError: the environment says something else than a power of two up to 256.
    """
    text = os.environ.get(SIZE_VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) not in _SIZES:
        raise DeviceError(
            f"{SIZE_VARIABLE} is {text!r}, but a partition has a power of two of IPUs, from 1 to "
            f"{_SIZES[-1]}"
        )
    return int(text)


def most_ipus() -> int:
    """Returns how many IPUs a device can have: those of the partition, or of the largest pod."""
    return read_partition_size() or _PODS[-1]


def find_machine(count: int = 1) -> Machine:
    """Returns the machine for devices of up to so many IPUs.

    That is the user's partition; where nobody says how large that is, the machine of 16, or the
    smallest pod with as many.

    Raises:
      DeviceError: there are not so many IPUs.
    """
    size, name = read_partition_size(), os.environ.get(PARTITION_VARIABLE) or "ipujax"
    limit = size or _PODS[-1]
    if not 1 <= count <= limit:
        source = f"partition {name!r} ({SIZE_VARIABLE})" if size else "the largest pod"
        raise DeviceError(
            f"{count} IPUs were asked for in one device, but a device has from 1 to {limit}, as "
            f"{source} has"
        )
    if size:
        return _build_pod(name, size)
    if count <= len(_PCI_BUSES):
        ipus = [Ipu(index, f"0000:{bus}:00.0") for index, bus in enumerate(_PCI_BUSES)]
        return _build_machine(name, tuple(ipus), _DNC_ORDER)
    return _build_pod(name, min(pod for pod in _PODS if pod >= count))


def _build_pod(partition: str, size: int) -> Machine:
    ipus = [Ipu(index, ipu_machine=f"ipu-machine-{index // 4}") for index in range(size)]
    return _build_machine(partition, tuple(ipus), tuple(range(size)))


@functools.cache
def _build_machine(partition: str, ipus: tuple[Ipu, ...], dnc_order: tuple[int, ...]) -> Machine:
    groups: list[tuple[Ipu, ...]] = [(ipu,) for ipu in ipus]
    for size in _SIZES[1 : len(ipus).bit_length()]:
        for start in range(0, len(ipus), size):
            groups.append(tuple(ipus[i] for i in dnc_order[start : start + size]))
    devices = tuple(ListedDevice(id, group) for id, group in enumerate(groups))
    return Machine(partition, ipus, devices)


def position_of_each_shard(count: int, order: SelectionOrder) -> tuple[int, ...]:
    """Returns the positions, in a group of linked IPUs, of shards 0, 1, ...; see `SelectionOrder`.

    Args:
      count: how many IPUs of the group are taken: its first ones.
      order: the order to put them in.

    Returns:
      A permutation of `range(count)`.
    """
    positions = range(count)
    if order is SelectionOrder.ZIGZAG:
        return tuple(positions)
    if order is SelectionOrder.HOOF:
        return (*positions[0::2], *reversed(positions[1::2]))
    # Bit 1 marks the rungs that a snake crosses from right to left.
    snake = (i ^ 1 if i & 2 else i for i in range(count + count % 2))
    return tuple(i for i in snake if i < count)


def _list_pcie(machine: Machine) -> list[str]:
    lines = ["Graphcore device listing:", ""]
    for device in machine.devices:
        line_start = f"-+- Id: {_format_in_brackets(device.id, 4)}, type:"
        if len(device.ipus) == 1:
            lines.append(f"{line_start} {'[PCIe]':>11}, PCI Domain: [{device.ipus[0].pci_domain}]")
            continue
        lines.append(f"{line_start} [Multi IPU]")
        for dnc_id, ipu in enumerate(device.ipus):
            lines.append(
                f"|--- PCIe Id: {_format_in_brackets(ipu.index, 4)}, DNC Id: [{dnc_id}], "
                f"PCI Domain: [{ipu.pci_domain}]"
            )
    return lines


def _list_pod(machine: Machine) -> list[str]:
    lines = ["Graphcore device listing:", f"Partition: {machine.partition} [active]"]
    for device in machine.devices:
        if len(device.ipus) == 1:
            lines.append(
                f"-+- Id: [{device.id}], target: [Fabric], {_format_place(device.ipus[0])}"
            )
            continue
        lines.append(f"-+- Id: [{device.id}], target: [Multi IPU]")
        lines += (
            f" |--- Id: [{ipu.index}], DNC Id: [{dnc_id}], {_format_place(ipu)}"
            for dnc_id, ipu in enumerate(device.ipus)
        )
    return lines


def _format_place(ipu: Ipu) -> str:
    return f"IPU-M host: [{ipu.ipu_machine}], IPU#: [{ipu.number_in_machine}]"


def _format_in_brackets(number: int, width: int) -> str:
    return f"[{number}]".rjust(width)
