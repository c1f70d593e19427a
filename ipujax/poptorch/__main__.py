"""`python -m ipujax.poptorch script.py ...` runs a script whose `import poptorch` finds ours."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ipujax.poptorch.install import install

_USAGE = """usage: python -m ipujax.poptorch SCRIPT.py [ARGUMENTS...]
       python -m ipujax.poptorch -m MODULE [ARGUMENTS...]

Runs a PopTorch program unchanged, on virtual IPUs."""


def main(arguments: list[str]) -> int:
    """Runs what the command line says; gives the exit status where it says nothing that runs."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    is_module = arguments[0] == "-m"
    if is_module and len(arguments) == 1:
        print(_USAGE, file=sys.stderr)
        return 2
    if not is_module and not Path(arguments[0]).is_file():
        print(f"there is no script {arguments[0]}\n\n{_USAGE}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
