"""Numbers as words: what advice and presentation write alike."""

from __future__ import annotations

from collections.abc import Sequence

_NEXT_UNIT = 999.5  # rounds to 1000
_WHOLE = 99.95  # rounds to 100
_ROUNDS_UP = 0.0005  # of shares: less would be shown as nothing


def ranges(numbers: Sequence[int]) -> str:
    """As `0-3, 6`; at most three of them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def counted(number: int, word: str, several: str = "") -> str:
    """As `1 replica` or `2 replicas`; `several` is the plural of a word that takes no `s`."""
    return f"{number:,} {word if number == 1 else several or f'{word}s'}"


def called(path: Sequence[str]) -> str:
    """A call path as `resnet.py:17 > :5`: each file once for frames in it that follow each other.

    Args:
      path: frames as `file:line (function)` or `cell 2, line 7 (function)`, the outermost first.
    """
    texts: list[str] = []
    before = ""
    for frame in path:
        place = frame.rpartition(" (")[0]
        file, between, line = place.rpartition(", line " if place.startswith("cell ") else ":")
        name = file.replace("\\", "/").rpartition("/")[2]
        texts.append(f":{line}" if file == before else f"{name}{between}{line}")
        before = file
    return " > ".join(texts)


def size(bytes_: int) -> str:
    """Bytes in powers of 1000: `1.5 MB`."""
    return _scaled(float(bytes_), ("B", "kB", "MB", "GB", "TB"))


def duration(seconds: float) -> str:
    """As `311 µs`."""
    return _scaled(seconds * 1e9, ("ns", "µs", "ms", "s")) if seconds else "0 s"


def percent(share: float) -> str:
    """0.1234 as `12.3%`; what would be `0.0%` and is not nothing as `<0.1%`."""
    return "<0.1%" if 0 < share < _ROUNDS_UP else f"{share:.1%}"


def percents(parts: Sequence[float]) -> list[str]:
    """The shares of parts in their sum, rounded so that what is shown adds up to 100.0%, too."""
    whole = sum(parts) or 1
    exact = [1000 * part / whole for part in parts]
    shown = [int(each) for each in exact]
    order = sorted(range(len(parts)), key=lambda i: shown[i] - exact[i])
    for i in order[: round(sum(exact)) - sum(shown)]:
        shown[i] += 1
    return [f"{each / 10:.1f}%" for each in shown]


def _scaled(value: float, units: Sequence[str]) -> str:
    """Three digits that count, without zeros at the end, in the unit that gives the fewest."""
    *others, last = units
    for unit in others:
        if abs(value) < _NEXT_UNIT:
            return f"{_three_digits(value)} {unit}"
        value /= 1000
    return f"{_three_digits(value)} {last}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"
