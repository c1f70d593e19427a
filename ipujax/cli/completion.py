"""`ipujax completion`: prints a script with which a shell completes the arguments of `ipujax`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence

from ipujax.cli.command import COMMANDS
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style

_SHELLS = ("bash", "fish", "tcsh", "zsh")
_EXAMPLES = (
    ("bash > ~/.local/share/bash-completion/completions/ipujax", "for bash"),
    ("zsh > ~/.zfunc/_ipujax", "for zsh, with ~/.zfunc in its fpath"),
)
_FILES = ("FILE", "OUT", "PATH", "DIR", "PROGRAM", ("A", "B"))
"""The placeholders of arguments that are files or folders."""


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "ipujax completion") -> int:
    """Prints the script of a shell; returns the exit code.

    Exit codes: 0; 1 if shtab, which writes the script, is not installed; 2 if the arguments are
    wrong.
    """
    shell = build_parser(prog).parse_args(argv).shell
    try:
        import shtab
    except ImportError:
        return style.print_error(prog, "shtab is not installed: pip install 'ipujax[completion]'")
    print(shtab.complete(_build_parser_of_all_commands(shtab.FILE), shell))
    return 0


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `ipujax completion`."""
    description = "Prints a script with which a shell completes commands, options and files."
    parser = style.build_parser(prog, description, _EXAMPLES)
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))
    return parser


def _build_parser_of_all_commands(complete_files: object) -> argparse.ArgumentParser:
    """Builds a parser that has each command's parser inside, which `ipujax` itself loads late."""
    whole_parser = argparse.ArgumentParser("ipujax")
    commands = whole_parser.add_subparsers()
    for name, text in COMMANDS.items():
        module = importlib.import_module(f"ipujax.cli.{name}")
        build_command_parser: Callable[[str], argparse.ArgumentParser] = module.build_parser
        command_parser = build_command_parser(f"ipujax {name}")
        for action in command_parser._actions:  # pyright: ignore[reportPrivateUsage]
            if action.metavar in _FILES:
                action.complete = complete_files  # pyright: ignore[reportAttributeAccessIssue]
        commands.add_parser(name, help=text, parents=[command_parser], add_help=False)
    return whole_parser
