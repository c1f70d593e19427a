"""Which variants of a parametrized sweep are run often: few, with every value of parameters.

A test's variants are of three kinds: those that everybody runs, those that CI runs besides
(`exhaustive`), and those that are run now and then (`complete`).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

EXHAUSTIVE = 1
"""How many variants CI runs beside those that everybody runs, where the mark does not say.

With all else that CI does, two would take it more than an hour.
"""


def sample(variants: Sequence[Mapping[str, int]], count: int, sweep: str) -> list[int]:
    """The numbers of `count` variants, spread evenly; a smaller sample is the begin of a larger.

    Each next one has the values that were taken least, and is far from those before. The first is
    another one in each sweep, so that sweeps of which one variant is taken take different ones.

    Args:
      variants: the number of each parameter's value, by the parameter's name.
      count: how many to take, at most all.
      sweep: its name.
    """
    taken: list[int] = []
    shown: Counter[tuple[str, int]] = Counter()
    # How far each that is left is from the nearest that is taken.
    distances = dict.fromkeys(range(len(variants)), len(variants))

    def dullness(number: int) -> tuple[int, int]:
        seen = sum(shown[pair] for pair in variants[number].items())
        return seen, -distances[number]

    chosen = zlib.crc32(sweep.encode()) % len(variants)
    while len(taken) < count:
        taken.append(chosen)
        shown.update(variants[chosen].items())
        del distances[chosen]
        if not distances:
            break
        for number, distance in distances.items():
            distances[number] = min(distance, abs(number - chosen))
        chosen = min(distances, key=dullness)
    return taken


def mark_the_rest(items: Sequence[pytest.Item]) -> None:
    """Marks what `@pytest.mark.sampled(quick, exhaustive)` leaves out of each kind of run."""
    sweeps: dict[tuple[str, int, int], list[pytest.Function]] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None:
            continue
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            raise pytest.UsageError(f"{item.nodeid}: `sampled` is for tests with parameters")
        if item.get_closest_marker("exhaustive") is None:
            sweep = item.nodeid.partition("[")[0]
            sweeps.setdefault((sweep, *_counts(item, mark)), []).append(item)
    for (sweep, quick, exhaustive), variants in sweeps.items():
        order = sample([variant.callspec.indices for variant in variants], exhaustive, sweep)
        for number, variant in enumerate(variants):
            if number not in order:
                variant.add_marker("complete")
            elif number not in order[:quick]:
                variant.add_marker("exhaustive")


def _counts(item: pytest.Item, mark: pytest.Mark) -> tuple[int, int]:
    """How many variants everybody runs, and how many CI does, these among them."""
    match mark.args:
        case (int(quick),) if quick > 0 and not mark.kwargs:
            return quick, quick + EXHAUSTIVE
        case (int(quick), int(exhaustive)) if 0 <= quick < exhaustive and not mark.kwargs:
            return quick, exhaustive
        case _:
            raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.sampled(4) or (4, 40)")
