"""`ipu.compare`: one model on several chips and under several schedules, side by side.

    print(ipu.compare(train, [params], schedules=["grouped", "gpipe", "one_f_one_b"]))

Nothing runs, and nothing is compiled by XLA.
"""

from __future__ import annotations

from ipujax.driver import comparison as _comparison

__all__ = [
    "Comparison",
    "Row",
    "compare",
]


def __dir__() -> list[str]:
    return __all__


Comparison = _comparison.Comparison
Row = _comparison.Row
compare = _comparison.compare
