"""Numbers are written in one style: three digits that count, one unit, shares with one decimal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipujax.ground import (
    count_with_noun,
    format_bytes,
    format_change,
    format_count,
    format_duration,
    format_percent,
    format_percents,
)


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (370_743, "371 kB"),
        (999_600, "1 MB"),
        (2_570_000, "2.57 MB"),
        (99_960_000, "100 MB"),
        (1_650_000_000, "1.65 GB"),
        (846_500, "847 kB"),  # halves go up, as a browser's do
        (12_250, "12.3 kB"),
    ],
)
def test_bytes(bytes_: int, text: str) -> None:
    assert format_bytes(bytes_) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (3e-9, "3 ns"),
        (99.56e-6, "99.6 µs"),
        (0.999_6e-3, "1 ms"),
        (0.0164, "16.4 ms"),
        (1500.0, "1,500 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_numbers_without_a_unit() -> None:
    assert [format_count(n) for n in (0, 12, 999.6, 1_540_000)] == ["0", "12", "1 k", "1.54 M"]


def test_changes_have_a_sign() -> None:
    assert [format_change(fraction) for fraction in (0.125, -0.0625, 9, -1e-5)] == [
        "+12.5%",
        "\N{MINUS SIGN}6.3%",
        "+900.0%",
        "0.0%",
    ]


def test_shares() -> None:
    assert [format_percent(share) for share in (0, 1e-5, 0.1234, 1)] == [
        "0.0%",
        "<0.1%",
        "12.3%",
        "100.0%",
    ]
    assert format_percents([1, 1, 1]) == ["33.4%", "33.3%", "33.3%"]
    assert format_percents([0, 0]) == ["0.0%", "0.0%"]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=7).filter(any))
def test_shares_of_a_whole_add_up(parts: list[int]) -> None:
    shown = [round(10 * float(text.removesuffix("%"))) for text in format_percents(parts)]
    assert sum(shown) == 1000
    for part, tenths in zip(parts, shown, strict=True):
        assert abs(1000 * part / sum(parts) - tenths) < 1 + 1e-6


def test_counts() -> None:
    assert count_with_noun(1, "micro-batch", "micro-batches") == "1 micro-batch"
    assert count_with_noun(1200, "micro-batch", "micro-batches") == "1,200 micro-batches"
    assert count_with_noun(2, "stage") == "2 stages"
