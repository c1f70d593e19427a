"""gc-inventory: what there is to know about each device, as `key: value` lines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ipujax.cli import style
from ipujax.cli.pipe import ends_with_its_reader
from ipujax.system.attachments import AttachedProcess, attached_processes
from ipujax.system.chips import MACHINE
from ipujax.system.device_ids import DEVICES, ListedDevice
from ipujax.version import __version__

# A virtual IPU has no thermometer: better to say so than to make numbers up.
_SENSORS = (
    *("firmware version", "serial number", "ipu error state", "parity errors", "ipu power"),
    *("ipu utilisation", "ipu temperature", "board temperature", "link speed", "link width"),
    "numa node",
)

_EXAMPLES = (("", "all devices"), ("--json", "the same for other programs"))


def describe(device: ListedDevice, processes: Sequence[AttachedProcess]) -> dict[str, str]:
    """The attributes of a device, in the order to show them.

    Args:
      device: one device of the listing.
      processes: the processes that are attached to any device.
    """
    indices = {ipu.index for ipu in device.ipus}
    users = [
        process.pid
        for process in processes
        if any(indices.intersection(each.ipus) for each in process.attachments)
    ]
    return {
        "id": str(device.id),
        "target": f"VirtualIPU (model of {MACHINE.version})",
        "type": "PCIe" if len(device.ipus) == 1 else "Multi IPU",
        "number of IPUs": str(len(device.ipus)),
        "PCIe ids": ", ".join(str(ipu.index) for ipu in device.ipus),
        "PCI domains": ", ".join(ipu.pci_domain for ipu in device.ipus),
        "ipu architecture": MACHINE.version,
        "chip": MACHINE.name,
        "tiles per IPU": str(MACHINE.tiles),
        "memory per tile": f"{MACHINE.bytes_per_tile} bytes",
        "clock": tile_clock_speed(),
        "remote buffers supported": str(int(MACHINE.remote_buffers)),
        "driver version": f"ipujax {__version__}",
        **dict.fromkeys(_SENSORS, "N/A (simulated)"),
        "attached processes": ", ".join(map(str, users)) or "none",
    }


def tile_clock_speed() -> str:
    """The clock of the machine's tiles, as in `1330MHz`."""
    return f"{MACHINE.clock_hz // 1_000_000}MHz"


@ends_with_its_reader
def main(argv: Sequence[str] | None = None, prog: str = "gc-inventory") -> int:
    """Prints the inventory; returns the exit code."""
    parser = style.parser(prog, "Tells all about each device of the virtual machine.", _EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments = parser.parse_args(argv)
    processes = attached_processes()
    devices = [describe(device, processes) for device in DEVICES]
    title = style.title("gc-inventory", f"Partition: 'ipujax' has {len(devices)} devices")
    described = (["", *style.fields("Device Info:", attributes)] for attributes in devices)
    lines = [title, *itertools.chain(*described)]
    return style.show({"devices": devices}, lines, as_json=arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
