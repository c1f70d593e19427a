"""`install()` lets `import poptorch` find this package, for scripts that stay as they are."""

from __future__ import annotations

from pathlib import Path

from ipujax.errors import PopTorchError
from ipujax.poptorch.older_torch import accept_older_calls
from ipujax.standin import install_popdist, stand_in_for

_FOR_CHILDREN = Path(__file__).with_name("for_children")


def install() -> None:
    """Has `import poptorch`, and modules in it, find `ipujax.poptorch`, and `popdist` ours, too.

    That holds for this process, and for those of Python that it starts: `PYTHONPATH` and `sys.path`
    get a folder with a module of this name.

    Nobody else calls this: put it above the first `import poptorch`, or run a script by
    `python -m ipujax.poptorch script.py`. PyTorch then takes what it took in PopTorch's time: see
    `older_torch`.

    Raises:
      PopTorchError: (a `ValueError`) another `poptorch` is imported already.
    """
    there = stand_in_for("poptorch", "ipujax.poptorch", _FOR_CHILDREN)
    if there is not None:
        raise PopTorchError(
            f"poptorch is imported already, from {getattr(there, '__file__', 'elsewhere')}",
            fix="call ipujax.poptorch.install() before anything imports poptorch",
        )
    install_popdist()
    accept_older_calls()
