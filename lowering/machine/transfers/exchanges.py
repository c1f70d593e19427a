"""Exchanges with other IPUs and with the host: arrays that share one share what is fixed in it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

from lowering.machine.target import Target
from lowering.machine.transfers.links import external_sync_cycles, host_cycles


def together(sizes: Iterable[int], most: int) -> list[int]:
    """The bytes of each exchange, if arrays go in order and no more than `most` bytes wait.

    Args:
      sizes: bytes of each array; one without any goes nowhere.
      most: up to how many bytes arrays go together; 0: each goes by itself. A larger one goes by
        itself, too.
    """
    exchanges: list[int] = []
    for size in filter(None, sizes):
        if exchanges and exchanges[-1] + size <= most:
            exchanges[-1] += size
        else:
            exchanges.append(size)
    return exchanges


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host, as an IPU sees it.

    Attributes:
      target: the chip.
      asks_tables: whether operations on its tables go there; else rows are made up.
      tables_are_remote: whether its tables are in streaming memory, beside the chip.
      merged_bytes: up to how many bytes arrays for its calls and tables go together.
    """

    target: Target
    asks_tables: bool = True
    tables_are_remote: bool = False
    merged_bytes: int = 0

    def cycles(self, sizes: Iterable[int], most: int | None = None) -> int:
        """Of arrays that go to the host, or come from there, one after the other.

        Every exchange begins with a sync of the IPU's tiles; what the host takes to answer is not
        known.

        Args:
          sizes: bytes of each array.
          most: up to how many bytes arrays go together; `merged_bytes` by default.
        """
        exchanges = together(sizes, self.merged_bytes if most is None else most)
        fixed = external_sync_cycles(self.target, 1) * len(exchanges)
        return fixed + sum(host_cycles(self.target, bytes_) for bytes_ in exchanges)
