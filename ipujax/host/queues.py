"""The base of infeed and outfeed queues: their names, life times and use by programs."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ipujax.ground import Checks, FeedError
from ipujax.host.elements import Reader
from lowering import jaxpr, ops

_numbers = {"infeed": itertools.count(), "outfeed": itertools.count()}
_names: weakref.WeakValueDictionary[str, Queue] = weakref.WeakValueDictionary()
_names_lock = threading.Lock()


def warn_of_deprecated_argument(
    queue: Queue, is_set: bool, argument: str, replacement: str
) -> None:
    """Warns, at the line that makes a queue, if it sets an argument that has no effect any more."""
    if is_set:
        message = f"{type(queue).__name__}({argument}=...) is deprecated: {replacement}"
        warnings.warn(message, DeprecationWarning, stacklevel=4)


check = Checks(FeedError, FeedError)


class _UsableQueue(ops.Stream, Protocol):
    def refuse_elements_of_other_form(self) -> None:
        """Refuses elements that are not of the form that programs were compiled for."""
        ...

    def begin_run(self, replicas: int) -> None:
        """Registers that a program with so many replicas starts to use the queue."""
        ...

    def end_run(self) -> None:
        """Registers that a program has ended its use of the queue."""
        ...


class Infeed(_UsableQueue, ops.Infeed, Protocol):
    """An infeed as a run needs it.

    Attributes:
      fetches_ahead: whether elements are fetched while devices compute
        (`IPUConfig.optimizations.prefetch_data_streams`).
    """

    fetches_ahead: bool

    @property
    def avals(self) -> list[jaxpr.Aval]:
        """The shape and dtype of each leaf of an element."""
        ...

    @property
    def reader(self) -> Reader:
        """The reader of the elements."""
        ...


class Collecting(Protocol):
    """A receiver of the elements that a run sends."""

    @property
    def name(self) -> str:
        """The name by which a user knows it."""
        ...

    def collect(
        self, structure: object, arrays: Sequence[np.ndarray], replicas: int, count: int
    ) -> None:
        """Takes `count` consecutive elements, `[count, (replicas,) *shape]` for each leaf."""
        ...


class Outfeed(_UsableQueue, Collecting, ops.Outfeed, Protocol):
    """An outfeed as a run needs it.

    Attributes:
      is_awaited: whether a run ends when its results are computed.
    """

    is_awaited: bool

    def collect_uncomputed(self, structure: object, rows: Sequence[Any]) -> None:
        """Takes the last element, `[1, *shape]` for each leaf, that may not be computed yet."""
        ...


class Queue:
    """A queue between the host and a device; `name` is unique among the living ones."""

    kind = "queue"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        jaxpr.hold_weakly(cls)

    def __init__(self, feed_name: str | None, device_ordinal: int):
        check.require_text(feed_name, "feed_name", optional=True)
        self.device_ordinal = check.require_integer(device_ordinal, "device_ordinal", 0)
        self.changed = threading.Condition(threading.RLock())
        self.running = 0
        self.deleted = False
        self.name = self._claim_name(feed_name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _claim_name(self, feed_name: str | None) -> str:
        with _names_lock:
            name = feed_name or f"{self.kind}_{next(_numbers[self.kind])}"
            existing_queue = _names.get(name)
            if existing_queue is not None and not existing_queue.deleted:
                raise FeedError(
                    f"there is a queue named `{name}` already; leave feed_name out (names are "
                    "generated), or run the other queue's deleter first"
                )
            _names[name] = self
            return name

    def refuse_elements_of_other_form(self) -> None:
        """Refuses elements that are not of the form that programs were compiled for."""

    def begin_run(self, replicas: int) -> None:
        """Registers that a program with so many replicas starts to use the queue."""
        del replicas
        with self.changed:
            if self.deleted:
                restart_hint = ", or call its initializer again" if self.kind == "infeed" else ""
                raise FeedError(
                    f"{self.kind} `{self.name}` is used after its deleter has run; make a new "
                    f"queue{restart_hint}"
                )
            self.running += 1

    def end_run(self) -> None:
        """Registers that a program has ended its use of the queue."""
        with self.changed:
            self.running -= 1
            self.changed.notify_all()

    def delete(self) -> None:
        """Releases what the queue holds.

        Raises:
          FeedError: while a program that uses it is running, or when it is gone already.
        """
        with self.changed:
            if self.running:
                raise FeedError(
                    f"{self.kind} `{self.name}` cannot be deleted while a program uses it"
                )
            if self.deleted:
                raise FeedError(f"{self.kind} with id=`{self.name}` was not found: deleted before")
            self.deleted = True

    def check_device(self, ordinal: int) -> None:
        """Raises FeedError if a program on this device cannot use the queue."""
        if ordinal != self.device_ordinal:
            raise FeedError(
                f"{self.kind} `{self.name}` belongs to /device:IPU:{self.device_ordinal}, but the "
                f"program runs on /device:IPU:{ordinal}; give the queue device_ordinal={ordinal}"
            )
