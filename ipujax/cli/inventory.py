"""gc-inventory: what there is to know about each device, as `key: value` lines."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Sequence

from ipujax._attachments import AttachedProcess, attached_processes
from ipujax._chips import MACHINE
from ipujax._machine import DEVICES, ListedDevice
from ipujax.cli.pipe import ends_with_its_reader

# A virtual IPU has no thermometer: better to say so than to make numbers up.
SIMULATED = "N/A (simulated)"


def version() -> str:
    """The installed version of ipujax."""
    try:
        return importlib.metadata.version("ipujax")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


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
        "driver version": f"ipujax {version()}",
        "firmware version": SIMULATED,
        "serial number": SIMULATED,
        "ipu error state": SIMULATED,
        "parity errors": SIMULATED,
        "ipu power": SIMULATED,
        "ipu utilisation": SIMULATED,
        "ipu temperature": SIMULATED,
        "board temperature": SIMULATED,
        "link speed": SIMULATED,
        "link width": SIMULATED,
        "numa node": SIMULATED,
        "attached processes": ", ".join(map(str, users)) or "none",
    }


def tile_clock_speed() -> str:
    """The clock of the machine's tiles, as in `1330MHz`."""
    return f"{MACHINE.clock_hz // 1_000_000}MHz"


@ends_with_its_reader
def main(argv: Sequence[str] | None = None) -> int:
    """Prints the inventory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="gc-inventory", description="Lists the devices of the virtual IPU machine."
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    arguments = parser.parse_args(argv)
    processes = attached_processes()
    devices = [describe(device, processes) for device in DEVICES]
    if arguments.json:
        print(json.dumps({"devices": devices}, indent=2))
        return 0
    for number, attributes in enumerate(devices):
        if number:
            print()
        for key, value in attributes.items():
            print(f"{key}: {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
