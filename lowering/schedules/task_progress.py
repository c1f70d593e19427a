"""The record of the tasks of a schedule that have run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Progress(Generic[Key]):
    """The micro-batch up to which all tasks of a kind have run, and those that have run beyond.

    Args:
      kinds: the phases and stages that there are.

    Attributes:
      count: the micro-batch below which all have run.
      beyond: others that have run; empty where a stage keeps to their order.
    """

    __slots__ = ("beyond", "count")

    def __init__(self, kinds: Iterable[Key]):
        self.count = dict.fromkeys(kinds, 0)
        self.beyond: dict[Key, set[int]] = {kind: set() for kind in self.count}

    def is_recorded(self, kind: Key, micro_batch: int) -> bool:
        """Returns whether a task has run."""
        return micro_batch < self.count[kind] or micro_batch in self.beyond[kind]

    def record_task(self, kind: Key, micro_batch: int) -> None:
        """Records a task that has not run before."""
        beyond = self.beyond[kind]
        if micro_batch != self.count[kind]:
            beyond.add(micro_batch)
            return
        micro_batch += 1
        while micro_batch in beyond:
            beyond.remove(micro_batch)
            micro_batch += 1
        self.count[kind] = micro_batch

    def counts_if_run_in_order(self) -> dict[Key, int] | None:
        """Returns the counts, or None if some tasks have run out of order."""
        return None if any(self.beyond.values()) else dict(self.count)

    def record_tasks_in_order(self, steps: Mapping[Key, int]) -> None:
        """Records as many more tasks of each kind, in order."""
        for kind, number in steps.items():
            self.count[kind] += number
