"""The original's names of its log."""

from __future__ import annotations

from ipujax.poptorch.checks import check
from ipujax.poptorch.log import LEVELS
from ipujax.poptorch.log import logger as logger
from ipujax.poptorch.log import setLogLevel as setLogLevel


def setPopartLogLevel(level: str) -> None:
    """Nothing: there is no PopART below, and so none of its lines.

    Raises:
      Error: (a `ValueError`) a level that is none.
    """
    if level not in LEVELS:
        raise check.refuse(f"Level must be one of {', '.join(LEVELS)}, and is {level!r}")
