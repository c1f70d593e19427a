"""`install()` lets `import poptorch` find this package, for scripts that stay as they are."""

from __future__ import annotations

from ipujax.errors import PopTorchError
from ipujax.standin import stand_in_for


def install() -> None:
    """Has `import poptorch`, and modules in it, find `ipujax.poptorch` in this process.

    Nobody else calls this: put it above the first `import poptorch`, or run a script by
    `python -m ipujax.poptorch script.py`.

    Raises:
      PopTorchError: (a `ValueError`) another `poptorch` is imported already.
    """
    there = stand_in_for("poptorch", "ipujax.poptorch")
    if there is not None:
        raise PopTorchError(
            f"poptorch is imported already, from {getattr(there, '__file__', 'elsewhere')}",
            fix="call ipujax.poptorch.install() before anything imports poptorch",
        )
