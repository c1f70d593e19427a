"""Reports: a program's cost by the machine model, `executable.report()`, and `load` from a file.

The modules make reports and present them: read `make` first, then one module per part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipujax.report.report import KINDS as KINDS
    from ipujax.report.report import Cost as Cost
    from ipujax.report.report import Report as Report
    from ipujax.report.report import load as load

__all__ = ["KINDS", "Cost", "Report", "load"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ipujax.report' has no attribute {name!r}")
    from ipujax.report import report  # the machine model, which most runs do not need

    return getattr(report, name)
