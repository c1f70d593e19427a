"""How all commands look: one form for help, titles, fields, JSON and errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipujax.version import __version__

Examples = Sequence[tuple[str, str]]
"""What may follow a command, and what it does."""


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        """Has it known when help cannot be written, which `argparse` passes over."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def parser(prog: str, description: str, examples: Examples) -> argparse.ArgumentParser:
    """A parser whose help ends with examples, and that tells the version.

    Args:
      prog: the command, as the user called it.
      description: what it does, in a sentence.
      examples: what may follow the command.
    """
    made = _Parser(
        prog=prog,
        description=description,
        epilog="\n".join(["examples:", *listed([(f"{prog} {a}", b) for a, b in examples])]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"ipujax {__version__}")
    return made


def listed(entries: Examples) -> list[str]:
    """Lines of two columns."""
    width = max(len(left) for left, _ in entries)
    return [f"  {left.ljust(width)}  {right}" for left, right in entries]


def title(command: str, text: str) -> str:
    """The line that output begins with."""
    return f"{command} | {text}"


def fields(head: str, values: Mapping[str, str]) -> list[str]:
    """A head, and below it a line `key: value` for each value."""
    return [head, *(f"  {key}: {value}" for key, value in values.items())]


def show(data: object, lines: Iterable[object], *, as_json: bool) -> int:
    """Prints data for other programs to read, or lines for people; returns the exit code, 0."""
    print(json.dumps(data, indent=2) if as_json else "\n".join(map(str, lines)))
    return 0


def fail(prog: str, message: str) -> int:
    """Tells what went wrong on stderr, as wrong arguments are told; returns the exit code, 1."""
    print(f"{prog}: error: {message}", file=sys.stderr)
    return 1
