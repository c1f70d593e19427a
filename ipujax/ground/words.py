"""Formats numbers as words, alike in advice and presentation."""

from __future__ import annotations

import decimal
from collections.abc import Sequence

_NEXT_UNIT = 999.5  # rounds to 1000
_WHOLE = 99.95  # rounds to 100
_HALF_UP = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)  # holds any float
_ROUNDS_UP = 0.0005  # of shares: less would be shown as nothing


def format_ranges(numbers: Sequence[int]) -> str:
    """Formats numbers as `0-3, 6`; at most three ranges."""
    intervals: list[list[int]] = []
    for number in numbers:
        if intervals and intervals[-1][1] == number - 1:
            intervals[-1][1] = number
        else:
            intervals.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in intervals]
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def count_with_noun(number: int, word: str, plural: str = "") -> str:
    """Formats `1 replica` or `2 replicas`; `plural` is for a noun that takes no `s`."""
    return f"{number:,} {word if number == 1 else plural or f'{word}s'}"


def shorten_call_path(path: Sequence[str]) -> str:
    """Formats a call path as `resnet.py:17 > :5`: each file once for consecutive frames in it.

    Args:
      path: frames as `file:line (function)` or `cell 2, line 7 (function)`, the outermost first;
        the function may be left out.
    """
    texts: list[str] = []
    previous_file = ""
    for frame in path:
        location = frame.rpartition(" (")[0] or frame
        file, separator, line = location.rpartition(
            ", line " if location.startswith("cell ") else ":"
        )
        name = file.replace("\\", "/").rpartition("/")[2]
        texts.append(f":{line}" if file == previous_file else f"{name}{separator}{line}")
        previous_file = file
    return " > ".join(texts)


def format_bytes(bytes_: float) -> str:
    """Formats bytes in powers of 1000, as `1.5 MB`."""
    return _format_with_unit(bytes_, ("B", "kB", "MB", "GB", "TB"))


def format_count(number: float) -> str:
    """Formats a number in powers of 1000, as `1.5 M`."""
    return _format_with_unit(number, ("", "k", "M", "G", "T")).strip()


def format_duration(seconds: float) -> str:
    """Formats seconds in a suitable unit, as `311 µs`."""
    return _format_with_unit(seconds * 1e9, ("ns", "µs", "ms", "s")) if seconds else "0 s"


def format_percent(fraction: float) -> str:
    """Formats 0.1234 as `12.3%`, and a small positive fraction as `<0.1%`."""
    return "<0.1%" if 0 < fraction < _ROUNDS_UP else f"{_round_half_up(100 * fraction, 1)}%"


def format_change(fraction: float) -> str:
    """Formats a relative change as `+12.5%`, with a minus sign for less; as `0.0%` below 0.1%."""
    percentage = _round_half_up(abs(100 * fraction), 1)
    sign = "\N{MINUS SIGN}" if fraction < 0 else "+"
    return f"{sign if percentage else ''}{percentage}%"


def format_percents(parts: Sequence[float]) -> list[str]:
    """Formats the shares of parts in their sum, rounded so that they add up to 100.0%."""
    total = sum(parts) or 1
    exact = [1000 * part / total for part in parts]
    tenths = [int(tenth) for tenth in exact]
    indices_by_rounding = sorted(range(len(parts)), key=lambda i: tenths[i] - exact[i])
    for i in indices_by_rounding[: round(sum(exact)) - sum(tenths)]:
        tenths[i] += 1
    return [f"{count / 10:.1f}%" for count in tenths]


def _format_with_unit(value: float, units: Sequence[str]) -> str:
    """Formats a value with three significant digits, in the unit that gives the fewest."""
    *smaller_units, largest_unit = units
    for unit in smaller_units:
        if abs(value) < _NEXT_UNIT:
            return f"{format_three_digits(value)} {unit}"
        value /= 1000
    return f"{format_three_digits(value)} {largest_unit}"


def format_three_digits(value: float) -> str:
    """Formats a number with three digits that count, as `0.742`, `7.5` or `1,230`."""
    if abs(value) >= _WHOLE:
        return f"{_round_half_up(value, 0):,}"
    exponent = decimal.Decimal(float(value)).adjusted() if value else 0
    text = f"{_round_half_up(value, 2 - exponent):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _round_half_up(value: float, decimals: int) -> decimal.Decimal:
    """Rounds as JavaScript does, so that text and page show equal numbers."""
    step = decimal.Decimal((0, (1,), -decimals))
    return decimal.Decimal(float(value)).quantize(step, context=_HALF_UP)
