"""The common form of all commands' output: help, titles, fields, JSON and errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipujax.ground.version import __version__

Examples = Sequence[tuple[str, str]]
"""Arguments that may follow a command, each with what the command then does."""


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        """Lets errors of writing help propagate, which `argparse` suppresses."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def build_parser(prog: str, description: str, examples: Examples) -> argparse.ArgumentParser:
    """Builds a parser with the version option, whose help ends with examples.

    Args:
      prog: the command, as the user called it.
      description: a sentence on the command.
      examples: arguments that may follow the command.
    """
    parser = _Parser(
        prog=prog,
        description=description,
        epilog="\n".join(
            ["examples:", *align_two_columns([(f"{prog} {a}", b) for a, b in examples])]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ipujax {__version__}")
    return parser


def align_two_columns(entries: Examples) -> list[str]:
    """Returns the lines of a table of two columns."""
    width = max(len(first_cell) for first_cell, _ in entries)
    return [f"  {first_cell.ljust(width)}  {second_cell}" for first_cell, second_cell in entries]


def format_title(command: str, text: str) -> str:
    """Returns the line that output begins with."""
    return f"{command} | {text}"


def format_fields(head: str, values: Mapping[str, str]) -> list[str]:
    """Returns a heading and below it a line `key: value` for each value."""
    return [head, *(f"  {key}: {value}" for key, value in values.items())]


def print_output(data: object, lines: Iterable[object], *, as_json: bool) -> int:
    """Prints data as JSON, or lines for people; returns the exit code, 0."""
    print(json.dumps(data, indent=2) if as_json else "\n".join(map(str, lines)))
    return 0


def print_error(prog: str, message: str) -> int:
    """Prints an error on stderr in the form of argument errors; returns the exit code, 1."""
    print(f"{prog}: error: {message}", file=sys.stderr)
    return 1
