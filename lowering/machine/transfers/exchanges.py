"""The cost of exchanges with other IPUs and the host, which arrays can share."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable

from lowering.machine.target import Target
from lowering.machine.transfers.links import external_sync_cycles, host_link_cycles


def merge_exchanges(sizes: Iterable[int], max_bytes: int) -> list[int]:
    """Returns the bytes of each exchange, if arrays go in order and wait up to `max_bytes` bytes.

    Args:
      sizes: bytes of each array; an empty one needs no exchange.
      max_bytes: up to how many bytes arrays go together; 0: each goes by itself. A larger one
        goes by itself, too.
    """
    exchanges: list[int] = []
    for size in filter(None, sizes):
        if exchanges and exchanges[-1] + size <= max_bytes:
            exchanges[-1] += size
        else:
            exchanges.append(size)
    return exchanges


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """The host, as an IPU sees it.

    Attributes:
      target: the chip.
      asks_tables: whether operations on its tables go there; otherwise their rows are synthetic.
      tables_are_remote: whether its tables are in streaming memory, beside the chip.
      merged_bytes: up to how many bytes arrays for its calls and tables go together.
    """

    target: Target
    asks_tables: bool = True
    tables_are_remote: bool = False
    merged_bytes: int = 0

    def host_transfer_cycles(self, sizes: Iterable[int], max_bytes: int | None = None) -> int:
        """Returns the cycles of arrays that go to or come from the host, one after the other.

        Every exchange begins with a sync of the IPU's tiles; the time of the host's answer is not
        known.

        Args:
          sizes: bytes of each array.
          max_bytes: up to how many bytes arrays go together; `merged_bytes` by default.
        """
        exchanges = merge_exchanges(sizes, self.merged_bytes if max_bytes is None else max_bytes)
        fixed = external_sync_cycles(self.target, 1) * len(exchanges)
        return fixed + sum(host_link_cycles(self.target, bytes_) for bytes_ in exchanges)
