"""Runs a script in a process where a package of ipujax stands in for the original."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

_USAGE = """usage: python -m ipujax.{name} SCRIPT.py [ARGUMENTS...]
       python -m ipujax.{name} -m MODULE [ARGUMENTS...]

Runs a {title} program unchanged, on virtual IPUs."""


def run_script(arguments: list[str], name: str, title: str, install: Callable[[], None]) -> int:
    """Runs the script or module of a command line; returns 2 for a command line that is wrong.

    Args:
      arguments: those after `python -m ipujax.name`.
      name: the name of the package.
      title: what people call it.
      install: makes it stand in for the original.
    """
    usage = _USAGE.format(name=name, title=title)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return 0 if arguments else 2
    is_module = arguments[0] == "-m"
    if is_module and len(arguments) == 1:
        print(usage, file=sys.stderr)
        return 2
    if not is_module and not Path(arguments[0]).is_file():
        print(f"there is no script {arguments[0]}\n\n{usage}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments[1:] if is_module else arguments
    if is_module:
        sys.path[0] = ""
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    return 0
