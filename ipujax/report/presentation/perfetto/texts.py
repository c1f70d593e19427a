"""Events as text: there may be millions, and few things to say of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

Event = dict[str, Any]

PROGRAM = 1
"""The thread of an IPU's program."""


def text(data: Any) -> str:
    """JSON without spaces."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def microseconds(ticks: float, hertz: float = 1.0) -> float:
    """What a clock counts, by default seconds, as microseconds.

    Starts and ends are rounded down to the nanoseconds in which viewers count, so that what does
    not overlap in ticks does not overlap in them, and what lies in one another still does.
    """
    return int(ticks * 1e9 / hertz) / 1000


def all_microseconds(ticks: np.ndarray, hertz: float) -> list[float]:
    """The same of many."""
    return ((ticks * (1e9 / hertz)).astype(np.int64) / 1000).tolist()


def begin(process: int, thread: int, at: float, what: str) -> str:
    """A slice that others lie in; `what` is its name and more, as JSON without braces."""
    return f'{{"ph":"B","pid":{process},"tid":{thread},"ts":{at},{what}}}'


def end(process: int, thread: int, at: float) -> str:
    """The end of the slice that was begun last."""
    return f'{{"ph":"E","pid":{process},"tid":{thread},"ts":{at}}}'


def whole(process: int, thread: int, at: float, until: float, what: str) -> str:
    """A slice that no others lie in."""
    long = round(until - at, 3)
    return f'{{"ph":"X","pid":{process},"tid":{thread},"ts":{at},"dur":{long},{what}}}'


def counter(process: int, name: str, unit: str, at: float, value: int) -> str:
    """What a counter counts from a time on; viewers call it by its name and unit."""
    what = f'"pid":{process},"tid":0,"ts":{at},"args":{{"{unit}":{value}}}'
    return f'{{"ph":"C","name":"{name}",{what}}}'
