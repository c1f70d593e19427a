"""`Attribute`: what the original's compiler was told of single operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipujax.poptorch.checks import check


@check.guard
class Attribute:
    """A scope whose operations have attributes; nothing here: XLA decides what code is shared.

    The original's compiler shared code only between operations whose `__outline` was the same.

    Args:
      attributes: values by name, for each kind.

    Raises:
      Error: they are no dictionaries.
    """

    def __init__(self, **attributes: Mapping[str, Any]):
        for kind, values in attributes.items():
            check.instance(values, Mapping, f"the value of {kind}", "a dictionary")

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *_: Any) -> None:
        """Nothing."""
