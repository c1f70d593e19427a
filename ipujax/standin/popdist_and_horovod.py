"""The function `install_popdist()`, which lets `import popdist` and `horovod` find ipujax's."""

from __future__ import annotations

from pathlib import Path

from ipujax.ground import DistributionError
from ipujax.standin.finder import stand_in_for

_FOR_CHILDREN = Path(__file__).with_name("for_children")
_NAMES = ("popdist", "horovod")
"""The original's package, and the one that programs use together with it."""


def install_popdist() -> None:
    """Has `import popdist`, and modules in it, find `ipujax.popdist`; `horovod` ours as well.

    That holds for this process, and for Python processes that it starts. `install()` of PopTorch's
    or PopART's stand-in calls this.

    Raises:
      DistributionError: (a `ValueError`) another `popdist` or `horovod` is imported already.
    """
    for name in _NAMES:
        there = stand_in_for(name, f"ipujax.{name}", _FOR_CHILDREN)
        if there is not None:
            raise DistributionError(
                f"{name} is imported already, from {getattr(there, '__file__', 'elsewhere')}",
                fix=f"call install() before anything imports {name}",
            )
