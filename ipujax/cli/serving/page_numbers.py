"""Formats numbers as the report's page does: three significant digits, no break at line ends."""

from __future__ import annotations

from collections.abc import Sequence

_SPACE = "\N{NO-BREAK SPACE}"
_CYCLES = ("", "k", "M", "G", "T")
_BYTES = ("B", "kB", "MB", "GB", "TB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def format_cycle_count(number: float) -> str:
    """Formats cycles in thousands, millions and so on, as `101 k`."""
    return _format_with_prefix(number, _CYCLES)


def format_byte_count(number: float) -> str:
    """Formats bytes in powers of 1000, as `10.2 kB`."""
    return _format_with_prefix(number, _BYTES)


def format_time(number: float) -> str:
    """Formats seconds in a suitable unit, as `75.8 µs`."""
    if not number:
        return "0 s"
    size, unit = next((s for s in _SECONDS if number >= s[0] * 0.9995), _SECONDS[-1])
    return f"{_format_three_digits(number / size)}{_SPACE}{unit}"


def format_relative_change(old_value: float, new_value: float) -> str:
    """Formats a change as `+12.5 %`; "" for none, and where a value is 0."""
    if not old_value or not new_value or old_value == new_value:
        return ""
    percentage = 100 * (new_value / old_value - 1)
    sign = "+" if percentage > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(percentage):,.{1 if abs(percentage) < 1000 else 0}f}{_SPACE}%"


def _format_with_prefix(number: float, units: Sequence[str]) -> str:
    unit = 0
    while number >= 999.5 and unit < len(units) - 1:
        number /= 1000
        unit += 1
    return f"{_format_three_digits(number)}{_SPACE}{units[unit]}".strip()


def _format_three_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{float(f'{number:.3g}'):g}"
