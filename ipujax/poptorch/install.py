"""The function `install()`, which lets `import poptorch` find this package."""

from __future__ import annotations

from ipujax.ground import PopTorchError
from ipujax.poptorch.older_torch import accept_older_calls
from ipujax.standin import install_libpvti, install_popdist, stand_in_for


def install() -> None:
    """Makes `import poptorch`, and `popdist`, find ipujax's packages.

    It acts in this process, and in Python processes that it starts: `PYTHONPATH` and `sys.path` get
    folders with modules of these names. `horovod`, `libpvti` and `popart` find ours, too.

    ipujax never calls this by itself: call it before the first `import poptorch`, or run a script
    by `python -m ipujax.poptorch script.py`. PyTorch then accepts the calls of PopTorch's time: see
    `older_torch`.

    Raises:
      PopTorchError: (a `ValueError`) another `poptorch` is imported already.
    """
    imported_module = stand_in_for("poptorch", "ipujax.poptorch")
    if imported_module is not None:
        raise PopTorchError(
            "poptorch is imported already, from "
            f"{getattr(imported_module, '__file__', 'elsewhere')}",
            fix="call ipujax.poptorch.install() before anything imports poptorch",
        )
    install_popdist()
    install_libpvti()
    accept_older_calls()
