"""What the tools that test a machine share: options, the chip, and words for what is modelled."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from ipujax.ground import DeviceError
from ipujax.ground import terminal_style as style
from ipujax.system import MACHINE, ListedDevice, Machine, find_machine
from lowering import machine as model

MODELLED = "Modelled, not measured: rates are the machine model's, and virtual IPUs cannot fail."
TARGET = model.TARGETS[MACHINE.version]
"""The chip of the machine."""


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `-d ID`, which defaults to device 0."""
    parser.add_argument(
        *("-d", "--device-id"), type=int, default=0, metavar="ID", help="the device (default: 0)"
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `-j`, with the names of the original and of the other commands."""
    parser.add_argument(
        *("-j", "--json-output", "--json"),
        action="store_true",
        dest="json",
        help="print JSON instead of text",
    )


def parse_count(text: str) -> int:
    """Parses a positive integer.

    Raises:
      argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def find_device(id: int) -> tuple[Machine, ListedDevice]:
    """Returns the machine, and its device with an id.

    Raises:
      DeviceError: there is none.
    """
    machine = find_machine()
    return machine, machine.device_with_id(id)


def place_of_single_ipu(machine: Machine, id: int) -> int:
    """Returns the place on the machine's ladder of the only IPU of a device.

    Raises:
      DeviceError: there is no such device, or it has several IPUs.
    """
    first, *others = machine.device_with_id(id).ipus
    if others:
        raise DeviceError(f"device {id} has {1 + len(others)} IPUs, but must be a single one")
    return machine.devices[-1].ipus.index(first)


def print_modelled(
    prog: str, title: str, data: Mapping[str, object], lines: Iterable[str], *, as_json: bool
) -> int:
    """Prints what a tool modelled, and that it did; returns the exit code, 0."""
    return style.print_output(
        {**data, "source": MODELLED},
        [style.format_title(prog, title), *lines, MODELLED],
        as_json=as_json,
    )
