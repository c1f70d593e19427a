"""gc-docker: starts a container in which ipujax sees the IPUs of one device."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from ipujax.cli.machine_model import find_device
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from ipujax.system import find_machine

_EXAMPLES = (
    ("-d 24 -- -ti IMAGE", "a container with four IPUs"),
    ("--echo -- IMAGE", "print the command of Docker"),
)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-docker") -> int:
    """Starts `docker run`; returns its exit code.

    Exit codes of our own: 1 if Docker is not installed; 2 if the arguments are wrong.
    """
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    words: list[str] = arguments.docker_arguments
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        parser.error("give the arguments of `docker run` after `--`, which name an image")
    command = [*("docker", "run"), *_choose_variables(arguments.device_id), *words]
    if arguments.echo:
        print(shlex.join(command))
        return 0
    if shutil.which("docker") is None:
        return style.print_error(prog, "docker is not installed here, or not in PATH")
    return subprocess.run(command, check=False).returncode


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-docker`."""
    parser = style.build_parser(
        prog, "Starts a container that sees the virtual IPUs of a device.", _EXAMPLES
    )
    parser.add_argument(
        *("-d", "--device-id"), type=int, metavar="ID", help="the device (default: all IPUs)"
    )
    parser.add_argument(
        "--echo", action="store_true", help="print the command of Docker, and start nothing"
    )
    parser.add_argument(
        "docker_arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="after `--`: arguments of `docker run`",
    )
    return parser


def _choose_variables(id: int | None) -> list[str]:
    """Returns the options of Docker that have a program in the container see the device's IPUs.

    Virtual IPUs need neither device files nor rights: the size of the partition is all.
    """
    machine = find_machine()
    variables: dict[str, str] = {}
    if id is not None:
        variables["IPUJAX_PARTITION_SIZE"] = str(len(find_device(id)[1].ipus))
    elif machine.ipus[0].ipu_machine:
        variables["IPUJAX_PARTITION_SIZE"] = str(len(machine.ipus))
    if os.environ.get("IPUOF_VIPU_API_PARTITION_ID"):
        variables["IPUOF_VIPU_API_PARTITION_ID"] = machine.partition
    return [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]


if __name__ == "__main__":
    raise SystemExit(main())
