"""Who reads the values of a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lowering.machine.cost import Shape
from lowering.machine.kernels.items import Listing, values


def uses_of(listing: Listing) -> Counter[int]:
    """How often each value is read, by items and as a result."""
    everything = (*(entry.reads for entry in listing.items), listing.results)
    return Counter(value for reads in everything for value in values(reads))


def ended_bytes(
    reads: Iterable[int | None], uses: Mapping[int, int], shapes: Sequence[Shape]
) -> int:
    """Bytes of the values that nobody else reads."""
    ended = {value for value in values(reads) if uses[value] == 1}
    return sum(shapes[value].bytes for value in ended)
