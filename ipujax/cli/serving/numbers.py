"""Numbers as the report's page writes them: three digits that count, never cut at line ends."""

from __future__ import annotations

from collections.abc import Sequence

_SPACE = "\N{NO-BREAK SPACE}"
_CYCLES = ("", "k", "M", "G", "T")
_BYTES = ("B", "kB", "MB", "GB", "TB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def cycles(number: float) -> str:
    """As `101 k`."""
    return _scaled(number, _CYCLES)


def in_bytes(number: float) -> str:
    """As `10.2 kB`, in powers of 1000."""
    return _scaled(number, _BYTES)


def seconds(number: float) -> str:
    """As `75.8 µs`."""
    if not number:
        return "0 s"
    size, unit = next((s for s in _SECONDS if number >= s[0] * 0.9995), _SECONDS[-1])
    return f"{_digits(number / size)}{_SPACE}{unit}"


def change(before: float, after: float) -> str:
    """As `+12.5 %`; "" for none, and where nothing can be said."""
    if not before or not after or before == after:
        return ""
    share = 100 * (after / before - 1)
    sign = "+" if share > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(share):,.{1 if abs(share) < 1000 else 0}f}{_SPACE}%"


def _scaled(number: float, units: Sequence[str]) -> str:
    unit = 0
    while number >= 999.5 and unit < len(units) - 1:
        number /= 1000
        unit += 1
    return f"{_digits(number)}{_SPACE}{units[unit]}".strip()


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{float(f'{number:.3g}'):g}"
