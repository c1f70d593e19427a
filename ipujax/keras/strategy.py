"""The strategy that is in force: which device Keras's models run on."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import threading
from collections.abc import Generator

from ipujax.system.devices import SYSTEM


@dc.dataclass(frozen=True)
class Strategy:
    """Where models run.

    Attributes:
      device: a logical device, `/device:IPU:<n>`.
      reduces: whether what replicas learn is brought together.
    """

    device: str
    reduces: bool = True

    def replicas(self, ipus: int = 1) -> int:
        """How many copies of a model of so many IPUs the device runs."""
        used = 1 << (ipus - 1).bit_length()
        return max(1, SYSTEM.device(self.device).num_ipus // used)


class _Open(threading.local):
    def __init__(self) -> None:
        self.strategies: list[Strategy] = []


_open = _Open()


def current() -> Strategy | None:
    """The strategy of the innermost scope of this thread, if any."""
    return _open.strategies[-1] if _open.strategies else None


@contextlib.contextmanager
def entered(strategy: Strategy) -> Generator[None]:
    """The scope of a strategy."""
    _open.strategies.append(strategy)
    try:
        yield
    finally:
        _open.strategies.pop()
