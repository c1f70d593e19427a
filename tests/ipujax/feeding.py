"""What tests of loops and queues share: data sources, devices, and counts of compilations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ipujax as ipu
from ipujax.events import IpuTraceEvent, IpuTraceEventType
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

Shape = tuple[int, ...]


def configure(*ipus: int) -> None:
    """One logical device for each count of IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = list(ipus)
    config.configure_ipu_system()


def incr(n: int, shape: Shape = (4, 4)) -> Callable[[], Iterator[np.ndarray]]:
    """The facts' endless source: element k is full of `k mod n`."""
    return lambda: (np.full(shape, k % n, np.float32) for k in itertools.count())


def incr_finite(n: int, shape: Shape = (4, 4)) -> list[np.ndarray]:
    """Its first n elements."""
    return list(itertools.islice(incr(n, shape)(), n))


def pairs(n: int, shape: Shape = (4, 4)) -> Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Endless pairs of x and (x + 10) / 2 over `incr(n)`."""
    return lambda: ((x, (x + 10) / 2) for x in incr(n, shape)())


def infeed(dataset: Any, **arguments: Any) -> IPUInfeedQueue:
    """An infeed of a data set."""
    return IPUInfeedQueue(dataset, **arguments)


def outfeed(mode: IPUOutfeedMode = IPUOutfeedMode.ALL, **arguments: Any) -> IPUOutfeedQueue:
    """An outfeed."""
    return IPUOutfeedQueue(outfeed_mode=mode, **arguments)


LAST = IPUOutfeedMode.LAST


def counted(trace: list[IpuTraceEvent], type: IpuTraceEventType) -> int:
    """How many events of a type a recording holds."""
    return sum(event.type is type for event in trace)


def compilations(trace: list[IpuTraceEvent]) -> int:
    """How many programs were compiled while it was recorded."""
    return counted(trace, IpuTraceEventType.COMPILE_BEGIN)


def executions(trace: list[IpuTraceEvent]) -> int:
    """How many programs were run while it was recorded."""
    return counted(trace, IpuTraceEventType.EXECUTE)


def full(value: float, shape: Shape = (4, 4)) -> np.ndarray:
    """An array full of one value."""
    return np.full(shape, value, np.float32)
