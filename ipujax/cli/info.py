"""gc-info: lists the devices of the virtual machine, and shows the attributes of one of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from ipujax.cli.inventory import list_device_attributes, tile_clock_speed
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from ipujax.system import MACHINE, Ipu, ListedDevice, Machine, find_machine, list_attached_processes

_EXAMPLES = (
    ("-l", "list all devices"),
    ("-d 0 -i", "show all attributes of device 0"),
    ("-d 24 --ipu-count", "print one number"),
)
_ANSWERS: Mapping[str, Callable[[ListedDevice], str | int]] = {
    "ipu_arch": lambda _: MACHINE.version,
    "tile_clock_speed": lambda _: tile_clock_speed(),
    "ipu_count": lambda device: len(device.ipus),
}
"""By option: the function that returns the attribute of a device to print."""


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-info") -> int:
    """Prints the devices or attributes that the arguments ask for; returns the exit code.

    Exit codes: 0; 2 if the arguments are wrong, such as an id that no device has.
    """
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    machine = find_machine()
    if arguments.list_devices:
        return style.print_output(
            _list_devices_as_json(machine), [machine.format_listing()], as_json=arguments.json
        )
    if not arguments.device_info and not any(getattr(arguments, name) for name in _ANSWERS):
        parser.print_help()
        return 0
    device_id: int | None = arguments.device_id
    if device_id is None:
        parser.error(f"choose which device with -d ID; `{prog} -l` lists them")
    device = machine.device_with_id(device_id)
    if arguments.device_info:
        attributes = list_device_attributes(device, list_attached_processes())
        lines = style.format_fields("Device Info:", attributes)
        return style.print_output(attributes, lines, as_json=arguments.json)
    attributes_asked_for = {
        name: read_attribute(device)
        for name, read_attribute in _ANSWERS.items()
        if getattr(arguments, name)
    }
    return style.print_output(
        attributes_asked_for, attributes_asked_for.values(), as_json=arguments.json
    )


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-info`."""
    parser = style.build_parser(prog, "Shows the devices of the virtual machine.", _EXAMPLES)
    add_argument = parser.add_argument
    add_argument("-l", "--list-devices", action="store_true", help="list all devices")
    add_argument("-d", "--device-id", type=int, metavar="ID", help="the device to show")
    # Two switches in the original, whose -I shows more; a virtual device has no more to show.
    add_argument(
        "-i", "-I", "--device-info", action="store_true", help="show all attributes of the device"
    )
    add_argument("--ipu-arch", action="store_true", help="print the architecture of its IPUs")
    add_argument(
        "--tile-clock-speed", action="store_true", help="print the clock speed of its tiles"
    )
    add_argument("--ipu-count", action="store_true", help="print the number of its IPUs")
    add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def _list_devices_as_json(machine: Machine) -> dict[str, list[dict[str, object]]]:
    return {
        "devices": [
            {
                "id": device.id,
                "type": "PCIe" if len(device.ipus) == 1 else "Multi IPU",
                "ipus": [
                    {"pcie_id": ipu.index, "dnc_id": dnc_id, **_address_as_json(ipu)}
                    for dnc_id, ipu in enumerate(device.ipus)
                ],
            }
            for device in machine.devices
        ]
    }


def _address_as_json(ipu: Ipu) -> dict[str, str | int]:
    if ipu.pci_domain:
        return {"pci_domain": ipu.pci_domain}
    return {"ipu_machine": ipu.ipu_machine, "ipu_number": ipu.number_in_machine}


if __name__ == "__main__":
    raise SystemExit(main())
