"""The function `install()`, which lets `import popart` find this package."""

from __future__ import annotations

from ipujax.ground import PopARTError
from ipujax.standin import install_libpvti, install_popdist, stand_in_for

_NAMES = ("popart", "popart_core")
"""The original's package, and the compiled one inside it, which some scripts import themselves."""


def install() -> None:
    """Makes `import popart`, `popart_core` and `popdist` find ipujax's packages.

    It acts in this process, and in Python processes that it starts: `PYTHONPATH` and `sys.path` get
    folders with modules of these names. `horovod`, `libpvti` and `poptorch` find ours, too.

    ipujax never calls this by itself: call it before the first `import popart`, or run a script by
    `python -m ipujax.popart script.py`.

    Raises:
      PopARTError: (a `ValueError`) another `popart` is imported already.
    """
    for name in _NAMES:
        imported_module = stand_in_for(name, "ipujax.popart")
        if imported_module is not None:
            raise PopARTError(
                f"{name} is imported already, from "
                f"{getattr(imported_module, '__file__', 'elsewhere')}",
                fix="call ipujax.popart.install() before anything imports popart",
            )
    install_popdist()
    install_libpvti()
