"""Which variants of a parametrized sweep are run often: few, with every value of parameters."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest


def sample(variants: Sequence[Mapping[str, int]], count: int, sweep: str) -> set[int]:
    """The numbers of `count` variants, spread evenly.

    Each next one has the values that were taken least, and is far from those before. The first is
    another one in each sweep, so that sweeps of which one variant is taken take different ones.

    Args:
      variants: the number of each parameter's value, by the parameter's name.
      count: how many to take, at most all.
      sweep: its name.
    """
    taken: list[int] = []
    shown: Counter[tuple[str, int]] = Counter()

    def dullness(number: int) -> tuple[int, int]:
        seen = sum(shown[pair] for pair in variants[number].items())
        return seen, -min(abs(number - other) for other in taken)

    chosen = zlib.crc32(sweep.encode()) % len(variants)
    while True:
        taken.append(chosen)
        shown.update(variants[chosen].items())
        rest = [number for number in range(len(variants)) if number not in taken]
        if len(taken) >= count or not rest:
            return set(taken)
        chosen = min(rest, key=dullness)


def mark_the_rest(items: Sequence[pytest.Item]) -> None:
    """Marks as exhaustive what `@pytest.mark.sampled(count)` leaves out."""
    sweeps: dict[tuple[str, int], list[pytest.Function]] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None:
            continue
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            raise pytest.UsageError(f"{item.nodeid}: `sampled` is for tests with parameters")
        if item.get_closest_marker("exhaustive") is None:
            sweep = item.nodeid.partition("[")[0]
            sweeps.setdefault((sweep, _count(item, mark)), []).append(item)
    for (sweep, count), variants in sweeps.items():
        kept = sample([variant.callspec.indices for variant in variants], count, sweep)
        for number, variant in enumerate(variants):
            if number not in kept:
                variant.add_marker("exhaustive")


def _count(item: pytest.Item, mark: pytest.Mark) -> int:
    match mark.args:
        case (int(count),) if count > 0 and not mark.kwargs:
            return count
        case _:
            raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.sampled(4)")
