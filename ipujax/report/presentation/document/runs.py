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
    steps = np.diff(values.astype(np.int64)).tolist()
    encoded_runs: Runs = []
    first, count, step = 0, 0, 0
    for i, value in enumerate(values.tolist()):
        if count > 1 and steps[i - 1] != step:
            encoded_runs.append([first, step, count])
            count = 0
        if count == 0:
            first, step = value, 0
        elif count == 1:
            step = steps[i - 1]
        count += 1
    return [*encoded_runs, [first, step, count]] if count else encoded_runs


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
    kinds, member = np.unique(
        np.stack([column.astype(np.int64) for column in columns]), axis=1, return_inverse=True
    )
    for i, kind in enumerate(kinds.T.tolist()):
        yield kind, np.flatnonzero(member.reshape(-1) == i)


def _check_total(counts: Iterable[int]) -> None:
    total = sum(counts)
    if total > MOST:
        raise ValueError(f"a list of {total:,} numbers, where {MOST:,} are the most")
