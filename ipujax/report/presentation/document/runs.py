"""Compresses arrays of integers: as arithmetic runs, or as values that repeat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

Runs = list[list[int]]
"""Arithmetic runs `[first, step, count]`."""

MOST = 10**8
"""The most numbers of one array, as a few letters could otherwise fill the memory."""

Repeats = list[list[int]]
"""Values and how often each comes, `[value, count]`."""


def encode_runs(values: np.ndarray) -> Runs:
    """Encodes numbers as the fewest runs `[first, step, count]` that a walk from the left finds."""
    if not len(values):
        return []
    values = values.astype(np.int64)
    steps = np.diff(values)
    starts = _starts_of_runs(steps)
    counts = np.diff([*starts, len(values)])
    # A number that stands alone has no step to the next.
    steps_of_runs = np.where(counts > 1, np.append(steps, 0)[starts], 0)
    return np.stack([values[starts], steps_of_runs, counts], axis=1).tolist()


def _starts_of_runs(steps: np.ndarray) -> list[int]:
    """Returns where the runs of numbers start that have these steps between them."""
    starts = [0]
    # Walks over stretches of equal steps, of which there are few where there are many numbers.
    for last in (np.flatnonzero(np.diff(steps)) + 1).tolist():
        if starts[-1] < last:
            starts.append(last + 1)
    return starts


def decode_runs(encoded_runs: Sequence[Sequence[int]]) -> np.ndarray:
    """Decodes the numbers (int64) that `encode_runs` encoded.

    Raises:
      ValueError: more than `MOST`.
    """
    _check_total(count for _, _, count in encoded_runs)
    parts = [first + step * np.arange(count, dtype=np.int64) for first, step, count in encoded_runs]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def encode_repeats(values: np.ndarray) -> Repeats:
    """Encodes numbers as `[value, count]`, for each value that comes several times in a row."""
    if not len(values):
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    counts = np.diff(np.concatenate([starts, [len(values)]]))
    return [list(pair) for pair in zip(values[starts].tolist(), counts.tolist(), strict=True)]


def decode_repeats(encoded_repeats: Sequence[Sequence[int]]) -> np.ndarray:
    """Decodes the numbers (int64) that `encode_repeats` encoded.

    Raises:
      ValueError: more than `MOST`.
    """
    _check_total(count for _, count in encoded_repeats)
    values = [value for value, _ in encoded_repeats]
    return np.repeat(np.array(values, dtype=np.int64), [count for _, count in encoded_repeats])


def group_equal_rows(*columns: np.ndarray) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yields each distinct row of some columns, with the indices at which it stands."""
    if not len(columns[0]):
        return
    member = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        kinds, kind = np.unique(column, return_inverse=True)
        # Numbered anew for each column, the product stays below the square of the rows.
        _, member = np.unique(member * len(kinds) + kind, return_inverse=True)
    order = np.argsort(member, kind="stable")
    for indices in np.split(order, np.flatnonzero(np.diff(member[order])) + 1):
        yield [int(column[indices[0]]) for column in columns], indices


def _check_total(counts: Iterable[int]) -> None:
    total = sum(counts)
    if total > MOST:
        raise ValueError(f"a list of {total:,} numbers, where {MOST:,} are the most")
