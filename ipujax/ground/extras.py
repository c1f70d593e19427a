"""Packages of extras: they are imported where they are first needed, if they are installed."""

from __future__ import annotations

import importlib.util

from ipujax.ground.errors import MissingExtraError


def require_package(package: str, extra: str, who_needs_it: str, *, advice: str = "") -> None:
    """Checks that a package of an extra is installed.

    Args:
      package: its name in Python.
      extra: the extra that installs it.
      who_needs_it: a sentence without its end, such as "saved executables need it".
      advice: more about the installation.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(
            f"the package {package} is not installed; {who_needs_it}",
            fix=f"pip install 'ipujax[{extra}]'{advice}",
        )
