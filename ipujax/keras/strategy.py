"""The strategy in force: the device on which Keras's models run."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import threading
from collections.abc import Generator

from ipujax.system import SYSTEM


@dc.dataclass(frozen=True)
class Strategy:
    """The device on which Keras's models run, and the reduction over replicas.

    Attributes:
      device: a logical device, `/device:IPU:<n>`.
      reduces: whether the gradients of replicas are averaged.
    """

    device: str
    reduces: bool = True

    def count_replicas(self, ipus: int = 1) -> int:
        """Returns the number of copies that the device runs of a model of some IPUs."""
        ipus_per_replica = 1 << (ipus - 1).bit_length()
        return max(1, SYSTEM.device(self.device).num_ipus // ipus_per_replica)


class _Open(threading.local):
    def __init__(self) -> None:
        self.strategies: list[Strategy] = []


_open = _Open()


def current_strategy() -> Strategy | None:
    """Returns the strategy of the innermost scope of this thread, if any."""
    return _open.strategies[-1] if _open.strategies else None


@contextlib.contextmanager
def enter_strategy(strategy: Strategy) -> Generator[None]:
    """Enters the scope of a strategy in the block."""
    _open.strategies.append(strategy)
    try:
        yield
    finally:
        _open.strategies.pop()
