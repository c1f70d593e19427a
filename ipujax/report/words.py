"""Numbers as words: what advice and presentation write alike."""

from __future__ import annotations

from collections.abc import Sequence


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


def counted(number: int, word: str) -> str:
    """As `1 replica` or `2 replicas`."""
    return f"{number:,} {word}{'s' * (number != 1)}"


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
    value = float(bytes_)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def duration(seconds: float) -> str:
    """As `310.6 us`."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
