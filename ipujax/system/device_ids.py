"""The machine that the virtual system stands for: 16 IPUs and the ways to group them.

Pure data and arithmetic, importable without JAX. The listing is that of "Targeting the IPU from
TensorFlow", `select_ipus`.
"""

from __future__ import annotations

import dataclasses

from ipujax.system.config_enums import SelectionOrder


@dataclasses.dataclass(frozen=True)
class Ipu:
    """One physical IPU.

    Attributes:
      index: its PCIe id, which is also its id in the listing.
      pci_domain: its address.
    """

    index: int
    pci_domain: str


@dataclasses.dataclass(frozen=True)
class ListedDevice:
    """One line of `gc-info -l`: an IPU, or a group of linked ones.

    Attributes:
      id: the number to select it by.
      ipus: its IPUs; the position is the DNC id.
    """

    id: int
    ipus: tuple[Ipu, ...]


_PCI_BUSES = "1a 1b 23 24 3d 3e 43 44 8b 8c 8e 8f b8 b9 ba bb".split()
IPUS = tuple(Ipu(index, f"0000:{bus}:00.0") for index, bus in enumerate(_PCI_BUSES))

# The DNC ids of the whole machine. Every smaller group is an aligned slice of it.
_DNC_ORDER = (5, 7, 4, 6, 3, 1, 2, 0, 13, 15, 12, 14, 9, 11, 10, 8)


def _list_devices() -> tuple[ListedDevice, ...]:
    groups: list[tuple[Ipu, ...]] = [(ipu,) for ipu in IPUS]
    for size in (2, 4, 8, 16):
        for start in range(0, len(IPUS), size):
            groups.append(tuple(IPUS[i] for i in _DNC_ORDER[start : start + size]))
    return tuple(ListedDevice(id, ipus) for id, ipus in enumerate(groups))


DEVICES = _list_devices()


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


def find_free_device(count: int, used_ipus: set[int]) -> ListedDevice:
    """Returns the device to use for a number of IPUs, 1 to 16.

    Args:
      count: how many IPUs are wanted.
      used_ipus: the indices of IPUs that other devices have.

    Returns:
      The first of the smallest large enough devices whose first `count` IPUs are free, or, if none
      is, the first of them all.
    """
    size = 1 << (count - 1).bit_length()
    candidates = [device for device in DEVICES if len(device.ipus) == size]
    for device in candidates:
        if used_ipus.isdisjoint(ipu.index for ipu in device.ipus[:count]):
            return device
    return candidates[0]


def format_device_listing() -> str:
    """Returns the text that `gc-info -l` prints."""
    lines = ["Graphcore device listing:", ""]
    for device in DEVICES:
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
    return "\n".join(lines)


def _format_in_brackets(number: int, width: int) -> str:
    return f"[{number}]".rjust(width)
