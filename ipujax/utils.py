"""General utilities: device queries, seeds, synthetic data, event traces and data export.

The configuration functions and enumerations of `ipujax.config` can be had from here, too. The
deprecated functions that took and returned options are gone; asking for one says what to use.
"""

from __future__ import annotations

from typing import Any

from ipujax.ground import MIGRATION, attach_names

_import_name, __dir__, __all__ = attach_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in MIGRATION:
        raise AttributeError(
            f"ipujax.utils has no '{name}': it was deprecated and is left out. Instead: "
            f"{MIGRATION[name]}"
        )
    return _import_name(name)
