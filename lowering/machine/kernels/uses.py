"""Who reads the values of a kernel."""

from __future__ import annotations

from lowering.machine.kernels.items import Listing


def uses_of(listing: Listing) -> dict[int, int]:
    """How often each value is read, by items and as a result."""
    uses: dict[int, int] = {}
    everything = (*(item.reads for item in listing.items), listing.results)
    for value in (value for reads in everything for value in reads if value is not None):
        uses[value] = uses.get(value, 0) + 1
    return uses
