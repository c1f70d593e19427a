"""The readers of a kernel's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lowering.machine.cost import Shape
from lowering.machine.kernels.items import Listing, without_literals


def count_reads(listing: Listing) -> Counter[int]:
    """Counts how often each value is read, by items and as a result."""
    everything = (*(entry.reads for entry in listing.items), listing.results)
    return Counter(value for reads in everything for value in without_literals(reads))


def bytes_that_nothing_else_reads(
    reads: Iterable[int | None], uses: Mapping[int, int], shapes: Sequence[Shape]
) -> int:
    """Returns the bytes of the values that nothing else reads."""
    last_reads = {value for value in without_literals(reads) if uses[value] == 1}
    return sum(shapes[value].bytes for value in last_reads)
