"""gc-inventory: shows all attributes of each device, as `key: value` lines."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import __version__
from ipujax.ground import terminal_style as style
from ipujax.system import (
    MACHINE,
    AttachedProcess,
    ListedDevice,
    find_machine,
    list_attached_processes,
)

# A virtual IPU has no sensors: say so instead of inventing numbers.
_SENSORS = (
    *("firmware version", "serial number", "ipu error state", "parity errors", "ipu power"),
    *("ipu utilisation", "ipu temperature", "board temperature", "link speed", "link width"),
    "numa node",
)

_EXAMPLES = (("", "print text"), ("--json", "print JSON, for other programs"))


def list_device_attributes(
    device: ListedDevice, processes: Sequence[AttachedProcess]
) -> dict[str, str]:
    """Returns the attributes of a device, in the order to show them.

    Args:
      device: one device of the listing.
      processes: the processes that are attached to any device.
    """
    addresses = "PCI domains" if device.ipus[0].pci_domain else "IPU-Machines"
    indices = {ipu.index for ipu in device.ipus}
    pids = [
        process.pid
        for process in processes
        if any(indices.intersection(attachment.ipus) for attachment in process.attachments)
    ]
    return {
        "id": str(device.id),
        "target": f"VirtualIPU (model of {MACHINE.version})",
        "type": "PCIe" if len(device.ipus) == 1 else "Multi IPU",
        "number of IPUs": str(len(device.ipus)),
        "PCIe ids": ", ".join(str(ipu.index) for ipu in device.ipus),
        addresses: ", ".join(ipu.address for ipu in device.ipus),
        "ipu architecture": MACHINE.version,
        "chip": MACHINE.name,
        "tiles per IPU": str(MACHINE.tiles),
        "memory per tile": f"{MACHINE.bytes_per_tile} bytes",
        "clock": tile_clock_speed(),
        "remote buffers supported": str(int(MACHINE.remote_buffers)),
        "driver version": f"ipujax {__version__}",
        **dict.fromkeys(_SENSORS, "N/A (simulated)"),
        "attached processes": ", ".join(map(str, pids)) or "none",
    }


def tile_clock_speed() -> str:
    """Returns the clock of the machine's tiles, as in `1330MHz`."""
    return f"{MACHINE.clock_hz // 1_000_000}MHz"


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-inventory") -> int:
    """Prints the inventory; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    processes = list_attached_processes()
    machine = find_machine()
    devices = [list_device_attributes(device, processes) for device in machine.devices]
    title = style.format_title(
        "gc-inventory", f"Partition: {machine.partition!r} has {len(devices)} devices"
    )
    device_lines = (
        ["", *style.format_fields("Device Info:", attributes)] for attributes in devices
    )
    lines = [title, *itertools.chain(*device_lines)]
    return style.print_output({"devices": devices}, lines, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-inventory`."""
    parser = style.build_parser(
        prog, "Shows all attributes of each device of the virtual machine.", _EXAMPLES
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
