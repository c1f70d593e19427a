"""gc-reset: forgets what ended processes left on the IPUs of a device."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax.cli.machine_model import find_device
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from ipujax.system import find_machine, list_attached_processes

_EXAMPLES = (("", "reset all IPUs"), ("-d 0", "reset the IPU of device 0"))


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-reset") -> int:
    """Removes the records of ended processes; returns the exit code.

    Exit codes: 0; 1 if a process of this user is attached to one of the IPUs.
    """
    id: int | None = build_parser(prog).parse_args(argv).device_id
    device = find_machine().devices[-1] if id is None else find_device(id)[1]
    indices = {ipu.index for ipu in device.ipus}
    users = [
        str(process.pid)
        for process in list_attached_processes()  # which removes what ended ones left
        if any(indices.intersection(attachment.ipus) for attachment in process.attachments)
    ]
    if users:
        return style.print_error(
            prog,
            f"device {device.id} is in use by process {', '.join(users)}: end it first "
            "(gc-monitor shows who uses which IPU)",
        )
    print(
        f"device {device.id}: {len(device.ipus)} IPUs reset. A virtual IPU has no state between "
        "programs: only the records of ended processes were removed."
    )
    return 0


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-reset`."""
    parser = style.build_parser(prog, "Resets virtual IPUs that no process uses.", _EXAMPLES)
    parser.add_argument(
        *("-d", "--device-id"), type=int, metavar="ID", help="the device (default: all IPUs)"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
