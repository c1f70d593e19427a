"""Writes trace events as text, as there may be millions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

Event = dict[str, Any]

PROGRAM = 1
"""The thread of an IPU's program."""


def to_compact_json(data: Any) -> str:
    """Returns data as JSON without spaces."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def convert_to_microseconds(ticks: float, hertz: float = 1.0) -> float:
    """Converts what a clock counts, by default seconds, to microseconds.

    Starts and ends are rounded down to the nanoseconds in which viewers count, so that slices that
    do not overlap in ticks do not overlap in them, and nested slices stay nested.
    """
    return int(ticks * 1e9 / hertz) / 1000


def convert_all_to_microseconds(ticks: np.ndarray, hertz: float) -> list[float]:
    """Converts many clock counts to microseconds; see `convert_to_microseconds`."""
    return ((ticks * (1e9 / hertz)).astype(np.int64) / 1000).tolist()


def slice_begin_event(process: int, thread: int, start_time: float, fields: str) -> str:
    """Returns the event that begins a slice; `fields` holds its name and arguments as JSON."""
    return f'{{"ph":"B","pid":{process},"tid":{thread},"ts":{start_time},{fields}}}'


def slice_end_event(process: int, thread: int, end_time: float) -> str:
    """Returns the event that ends the slice that was begun last."""
    return f'{{"ph":"E","pid":{process},"tid":{thread},"ts":{end_time}}}'


def complete_slice_event(
    process: int, thread: int, start_time: float, end_time: float, fields: str
) -> str:
    """Returns the event of a slice that contains no others."""
    duration = round(end_time - start_time, 3)
    return (
        f'{{"ph":"X","pid":{process},"tid":{thread},"ts":{start_time},"dur":{duration},{fields}}}'
    )


def counter_event(process: int, name: str, unit: str, time: float, value: int) -> str:
    """Returns the event that sets a counter from a time on; viewers show its name and unit."""
    fields = f'"pid":{process},"tid":0,"ts":{time},"args":{{"{unit}":{value}}}'
    return f'{{"ph":"C","name":"{name}",{fields}}}'
