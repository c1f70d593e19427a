"""ipujax: the command that runs all others, `ipujax run`, `ipujax report` and so on."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence

from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style

_COMMANDS = {
    "run": "starts a program as several processes (ipurun)",
    "report": "shows what the machine model says of a program",
    "info": "lists the virtual devices, and tells about one of them (gc-info)",
    "inventory": "tells all about each virtual device (gc-inventory)",
    "monitor": "shows the virtual IPUs and who is attached to them (gc-monitor)",
}
_EXAMPLES = (
    ("run --num-instances 2 python train.py", "two processes"),
    ("report report.json", "a page of text"),
    ("report report.json --html report.html", "a page for a browser"),
    ("report --diff a.json b.json", "what a change did"),
    ("report --serve reports/", "a directory, in a browser"),
    ("monitor", "who uses which IPUs"),
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
    command_list = "\n".join(style.align_two_columns(list(_COMMANDS.items())))
    parser.usage = f"{prog} [-h] [--version] COMMAND ..."
    parser.description = (
        f"{parser.description}\n\ncommands (`ipujax COMMAND --help` says more):\n{command_list}"
    )
    parser.add_argument(
        "command", choices=_COMMANDS, nargs="?", metavar="COMMAND", help=argparse.SUPPRESS
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
