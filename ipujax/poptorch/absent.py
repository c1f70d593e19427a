"""What PopTorch has and this package has not: each raises an error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipujax.poptorch.checks import check


@check.guard
def custom_op(
    inputs: Any,
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Any,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """An operation that a compiled library of PopART's defines.

    Raises:
      Error: (a `ValueError`) always: such libraries are for IPUs; or attributes that are none.
    """
    check.instance(attributes, Mapping, "attributes", "a dictionary", optional=True)
    for key, value in (attributes or {}).items():
        _check_attribute(key, value)
    raise check.refuse(
        f"poptorch.custom_op: {domain}.{name} (version {domain_version}) is code for IPUs, which "
        "cannot run here",
        "write it with PyTorch's operators, or as poptorch.CPU(function, name) in inference",
    )


def _check_attribute(key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise check.refuse("All attribute keys must be strings.")
    if not isinstance(value, float | int | str | list | tuple):
        raise check.refuse(
            "Attribute values must be floats, ints, strings or a list/tuple of float, ints of "
            "strings."
        )
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(not isinstance(item, type(items[0])) for item in items):
        raise check.refuse("The types in a list/tuple attribute must all be the same.")
    for text in (key, *(item for item in items if isinstance(item, str))):
        if not text.isascii():
            raise check.refuse(f"{text} contains non-ASCII characters.")


@check.guard
def fps(*args: Any, **kwargs: Any) -> Any:
    """Farthest points of a cloud.

    Raises:
      Error: always: operations for graphs and clouds of points are missing.
    """
    raise _missing("fps")


@check.guard
def nearest(*args: Any, **kwargs: Any) -> Any:
    """The nearest of some points.

    Raises:
      Error: always: operations for graphs and clouds of points are missing.
    """
    raise _missing("nearest")


@check.guard
def autocast(*args: Any, **kwargs: Any) -> Any:
    """Dtypes that the original once chose by itself.

    Raises:
      Error: always: modules compute in the dtypes that they and PyTorch say.
    """
    raise check.refuse(
        "poptorch.autocast: no dtypes are chosen automatically, as in the original's last versions",
        "call model.half(), or cast tensors with .half() and .float()",
    )


def _missing(name: str) -> Exception:
    return check.refuse(
        f"poptorch.{name}: operations for graphs and clouds of points are missing",
        "write it with PyTorch's operators",
    )
