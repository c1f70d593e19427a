"""Which tasks have run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lowering.schedules.task import Phase

Kind: TypeAlias = tuple[Phase, int]
"""A phase and the stage that it is of."""


class Progress:
    """For each kind of task, up to which micro-batch all have run, and which ones beyond.

    Args:
      kinds: the phases and stages that there are.

    Attributes:
      count: all micro-batches below it have run.
      beyond: others that have; empty where a stage keeps to their order.
    """

    __slots__ = ("beyond", "count")

    def __init__(self, kinds: Iterable[Kind]):
        self.count = dict.fromkeys(kinds, 0)
        self.beyond: dict[Kind, set[int]] = {kind: set() for kind in self.count}

    def has(self, kind: Kind, micro_batch: int) -> bool:
        """Whether a task has run."""
        return micro_batch < self.count[kind] or micro_batch in self.beyond[kind]

    def number(self, kind: Kind) -> int:
        """How many tasks of a kind have run."""
        return self.count[kind] + len(self.beyond[kind])

    def add(self, kind: Kind, micro_batch: int) -> None:
        """A task that has not run before runs."""
        beyond = self.beyond[kind]
        if micro_batch != self.count[kind]:
            beyond.add(micro_batch)
            return
        micro_batch += 1
        while micro_batch in beyond:
            beyond.remove(micro_batch)
            micro_batch += 1
        self.count[kind] = micro_batch

    def in_order(self) -> dict[Kind, int] | None:
        """The counts, if they say everything."""
        return None if any(self.beyond.values()) else dict(self.count)

    def skip(self, steps: Mapping[Kind, int]) -> None:
        """Runs as many more tasks of each kind, in order."""
        for kind, more in steps.items():
            self.count[kind] += more
