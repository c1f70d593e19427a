"""The command `ipujax`, which runs the others: `ipujax run`, `ipujax report` and so on."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence

from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style

COMMANDS = {
    "run": "start a program in several processes (also ipurun)",
    "report": "show the modelled cycles and memory of a program",
    "info": "list the virtual devices, or show one of them (also gc-info)",
    "inventory": "show the details of every virtual device (also gc-inventory)",
    "monitor": "show the virtual IPUs and who uses them (also gc-monitor)",
    "links": "list the links between virtual IPUs (also gc-links)",
    "iputraffictest": "model transfers between IPUs (also gc-iputraffictest)",
    "hosttraffictest": "model transfers to the host (also gc-hosttraffictest)",
    "exchangetest": "model exchanges between tiles (also gc-exchangetest)",
    "memorytest": "model a test of tiles' memory (also gc-memorytest)",
    "reset": "reset virtual IPUs (also gc-reset)",
    "powertest": "says that power is not modelled (also gc-powertest)",
    "docker": "start a container with some IPUs (also gc-docker)",
    "completion": "print what has a shell complete this command",
}
"""The commands, and what each does. Module `ipujax.cli.NAME` has its `main` and `build_parser`."""

_EXAMPLES = (
    ("run --num-instances 2 python train.py", "start two processes"),
    ("report report.json", "print a report as text"),
    ("report report.json --html report.html", "write it as a page for a browser"),
    ("report --diff a.json b.json", "compare two reports"),
    ("report --serve reports/", "show a folder in a browser"),
    ("monitor", "list the processes that use IPUs"),
)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "ipujax") -> int:
    """Runs a command; returns its exit code.

    Exit codes: 0; 1 if something cannot be read or written; 2 if the arguments are wrong.
    """
    parser = _build_command_parser(prog)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    module = importlib.import_module(f"ipujax.cli.{arguments.command}")
    run_command: Callable[..., int] = module.main
    return run_command(arguments.arguments, prog=f"{prog} {arguments.command}")


def _build_command_parser(prog: str) -> argparse.ArgumentParser:
    parser = style.build_parser(prog, "Graphcore's IPU programming model on JAX.", _EXAMPLES)
    command_list = "\n".join(style.align_two_columns(list(COMMANDS.items())))
    parser.usage = f"{prog} [-h] [--version] COMMAND ..."
    parser.description = (
        f"{parser.description}\n\ncommands (for details: `ipujax COMMAND --help`):\n{command_list}"
    )
    parser.add_argument(
        "command", choices=COMMANDS, nargs="?", metavar="COMMAND", help=argparse.SUPPRESS
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
