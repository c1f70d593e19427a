"""`install()` lets `import popart` find this package, for scripts that stay as they are."""

from __future__ import annotations

from pathlib import Path

from ipujax.errors import PopARTError
from ipujax.standin import install_popdist, stand_in_for

_FOR_CHILDREN = Path(__file__).with_name("for_children")
_NAMES = ("popart", "popart_core")
"""The original's package, and the compiled one inside it, which some scripts import themselves."""


def install() -> None:
    """Has `import popart`, and modules in it, find `ipujax.popart`; `import popart_core` does, too.

    `import popdist` finds `ipujax.popdist`.

    That holds for this process, and for those of Python that it starts: `PYTHONPATH` and `sys.path`
    get folders with modules of these names.

    Nobody else calls this: put it above the first `import popart`, or run a script by
    `python -m ipujax.popart script.py`.

    Raises:
      PopARTError: (a `ValueError`) another `popart` is imported already.
    """
    for name in _NAMES:
        there = stand_in_for(name, "ipujax.popart", _FOR_CHILDREN)
        if there is not None:
            raise PopARTError(
                f"{name} is imported already, from {getattr(there, '__file__', 'elsewhere')}",
                fix="call ipujax.popart.install() before anything imports popart",
            )
    install_popdist()
