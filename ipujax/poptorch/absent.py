"""What PopTorch has and this package has not: each raises an error that says so."""

from __future__ import annotations

from typing import Any

from ipujax.poptorch.checks import check


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
