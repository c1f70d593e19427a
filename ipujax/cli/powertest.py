"""gc-powertest: says that there is no model of power."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax.cli.machine_model import add_device_argument, find_device
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style

_EXAMPLES = (("-d 0", "ask for the power of device 0"),)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-powertest") -> int:
    """Prints that power is not modelled; returns the exit code, 1."""
    _, device = find_device(build_parser(prog).parse_args(argv).device_id)
    return style.print_error(
        prog,
        f"device {device.id} is virtual, and there is no model of an IPU's power or temperature: "
        "nothing can be tested. Cycles and memory are modelled, see `ipujax report --help`",
    )


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-powertest`."""
    description = "Would test power and temperature, of which there is no model."
    parser = style.build_parser(prog, description, _EXAMPLES)
    add_device_argument(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
