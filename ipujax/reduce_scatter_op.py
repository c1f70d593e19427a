"""Reductions over replicas that leave each replica with a part of the result."""

from __future__ import annotations

from ipujax.operators import reduce_scatter as _reduce_scatter

__all__ = [
    "reduce_scatter",
]


def __dir__() -> list[str]:
    return __all__


reduce_scatter = _reduce_scatter.reduce_scatter
