"""The scope `Attribute`, which carried attributes of operations to the original's compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipujax.poptorch.poptorch_checks import check


@check.guard
class Attribute:
    """A scope that gives its operations attributes; nothing here: XLA decides what code is shared.

    The original's compiler shared code only between operations whose `__outline` was the same.

    Args:
      attributes: for each kind of attribute a dictionary of values by name.

    Raises:
      Error: an argument is no dictionary.
    """

    def __init__(self, **attributes: Mapping[str, Any]):
        for kind, values in attributes.items():
            check.require_instance(values, Mapping, f"the value of {kind}", "a dictionary")

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, *_: object) -> None:
        """Does nothing."""
