"""gc-monitor: shows the machine's IPUs, and the processes that are attached to them."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence

from ipujax.cli.inventory import tile_clock_speed
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import Row, __version__, format_boxed_table
from ipujax.ground import terminal_style as style
from ipujax.system import (
    MACHINE,
    AttachedProcess,
    Machine,
    find_machine,
    list_attached_processes,
    most_ipus,
)

_NONE = "N/A"  # shown where a virtual IPU has no sensor
_IPUS = ("IPU-M", "Serial", "ICU FW", "Type", "Server version", "ID", "PCIe ID", "Routing", "GWSW")
_PROCESSES = ("PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power")
_EXAMPLES = (("", "print two tables"), ("--json", "print JSON, for other programs"))
_PARTS = (("Attached processes", 4), ("IPU", 3), ("Board", 2))


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-monitor") -> int:
    """Prints the tables of IPUs and of processes; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    processes = list_attached_processes()
    machine = _find_machine_in_use(processes)
    title = f"Partition: {machine.partition!r} has {len(machine.ipus)} virtual IPUs"
    lines = [
        style.format_title("gc-monitor", title),
        *format_boxed_table(_IPUS, _list_ipu_rows(machine)),
        *format_boxed_table(_PROCESSES, _list_process_rows(processes), _PARTS),
    ]
    if not processes:
        lines.append("No process of this user is attached.")
    return style.print_output(
        _build_monitor_json(machine, processes), lines, as_json=arguments.json
    )


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-monitor`."""
    description = "Shows the virtual IPUs, and which processes of this user use them."
    parser = style.build_parser(prog, description, _EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _find_machine_in_use(processes: Sequence[AttachedProcess]) -> Machine:
    """Returns the machine, which is the smallest pod that has all IPUs that processes use."""
    used_ipus = [ipu for process in processes for part in process.attachments for ipu in part.ipus]
    return find_machine(min(max(used_ipus, default=0) + 1, most_ipus()))


def _list_ipu_rows(machine: Machine) -> list[list[Row]]:
    """Returns one row for each IPU, with a group for each four that are linked."""
    size = min(4, len(machine.ipus))
    four_ipu_groups = [device.ipus for device in machine.devices if len(device.ipus) == size]
    four_ipu_groups.sort(key=lambda group: min(ipu.index for ipu in group))
    server = f"ipujax {__version__}"
    kind = f"virtual {MACHINE.version}"
    return [
        [
            (
                *(ipu.ipu_machine or "simulated", _NONE, _NONE, kind, server, str(ipu.index)),
                *(ipu.pci_domain or str(ipu.number_in_machine), "DNC", _NONE),
            )
            for ipu in sorted(four, key=lambda ipu: ipu.index)
        ]
        for four in four_ipu_groups
    ]


def _list_process_rows(processes: Sequence[AttachedProcess]) -> list[list[Row]]:
    """Returns one row for each IPU that a process is attached to, with a group for each device."""
    groups: list[list[Row]] = []
    for process in processes:
        process_cells = (
            str(process.pid),
            process.command,
            format_age(time.time() - process.since),
            process.user,
        )
        sensor_cells = (tile_clock_speed(), _NONE, _NONE, _NONE)
        for attachment in process.attachments:
            groups.append(
                [(*process_cells, str(ipu), *sensor_cells) for ipu in sorted(attachment.ipus)]
            )
    return groups


def format_age(seconds: float) -> str:
    """Formats a time span in its two largest units: `42s`, `9m4s`, `1h3m`, `2d0h`."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour}h"
    if hours:
        return f"{hours}h{minute}m"
    return f"{minutes}m{second}s" if minutes else f"{second}s"


def _build_monitor_json(
    machine: Machine, processes: Sequence[AttachedProcess]
) -> dict[str, object]:
    return {
        "ipus": [dataclasses.asdict(ipu) for ipu in machine.ipus],
        "target": f"VirtualIPU (model of {MACHINE.version})",
        "clock": tile_clock_speed(),
        "processes": [dataclasses.asdict(process) for process in processes],
    }


if __name__ == "__main__":
    raise SystemExit(main())
