"""`install()` lets `import popdist` find this package, for scripts that stay as they are."""

from __future__ import annotations

from ipujax.errors import DistributionError
from ipujax.standin import stand_in_for


def install() -> None:
    """Has `import popdist`, and modules in it, find `ipujax.popdist`.

    That holds for this process, and for those of Python that it starts. What stands in for PopTorch
    or PopART calls this.

    Raises:
      DistributionError: (a `ValueError`) another `popdist` is imported already.
    """
    there = stand_in_for("popdist", "ipujax.popdist")
    if there is not None:
        raise DistributionError(
            f"popdist is imported already, from {getattr(there, '__file__', 'elsewhere')}",
            fix="call install() before anything imports popdist",
        )
