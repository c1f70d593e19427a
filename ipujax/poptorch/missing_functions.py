"""The functions of PopTorch that this package does not have: each raises an error that says so."""

from __future__ import annotations

from typing import NoReturn

from ipujax.poptorch.poptorch_checks import check


@check.guard
def fps(*args: object, **kwargs: object) -> NoReturn:
    """Raises an error: sampling of the farthest points of a point cloud is missing.

    Raises:
      Error: always: operations for graphs and clouds of points are missing.
    """
    raise _missing_function_error("fps")


@check.guard
def nearest(*args: object, **kwargs: object) -> NoReturn:
    """Raises an error: search of nearest points is missing.

    Raises:
      Error: always: operations for graphs and clouds of points are missing.
    """
    raise _missing_function_error("nearest")


def _missing_function_error(name: str) -> Exception:
    return check.value_error(
        f"poptorch.{name}: operations for graphs and clouds of points are missing",
        "write it with PyTorch's operators",
    )
