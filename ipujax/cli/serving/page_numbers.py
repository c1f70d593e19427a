"""Formats numbers as everywhere, but so that no line breaks within one."""

from __future__ import annotations

from ipujax.ground import format_bytes, format_change, format_count, format_duration

_SPACE = "\N{NO-BREAK SPACE}"


def format_cycle_count(number: float) -> str:
    """Formats cycles in thousands, millions and so on, as `101 k`."""
    return format_count(number).replace(" ", _SPACE)


def format_byte_count(number: float) -> str:
    """Formats bytes in powers of 1000, as `10.2 kB`."""
    return format_bytes(number).replace(" ", _SPACE)


def format_time(seconds: float) -> str:
    """Formats seconds in a suitable unit, as `75.8 µs`."""
    return format_duration(seconds).replace(" ", _SPACE)


def format_relative_change(old_value: float, new_value: float) -> str:
    """Formats a change as `+12.5%`; "" for none, and where a value is 0."""
    if not old_value or not new_value or old_value == new_value:
        return ""
    return format_change(new_value / old_value - 1)
