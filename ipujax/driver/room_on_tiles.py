"""The check that what users put on tiles by hand fits there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ipujax.ground import OutOfMemoryError
from ipujax.report import Report
from lowering import machine

_NAMED = 5  # tensors that an error names


def require_room_on_tiles(report: Report) -> None:
    """Checks that each tile has room for what users have put there, all that lives at once.

    What the planner lays out does not count: it could lie elsewhere.

    Raises:
      OutOfMemoryError: (a `MemoryError`) a tile has no room; names it, tensors and their lines.
    """
    limit = report.memory.limit
    for ipu, liveness in enumerate(report.profile.liveness):
        tensors = [tensor for tensor in liveness.tensors if _is_by_hand(tensor)]
        fullest = max(_find_fullest_tiles(tensors), default=None)
        if fullest is None or fullest[0] <= limit:
            continue
        bytes_on_tile, tile, step = fullest
        on_tile = [
            (int(tensor.mapping.bytes_per_tile()[tile]), tensor)
            for tensor in tensors
            if tensor.alive_at(step)
        ]
        on_tile = sorted((pair for pair in on_tile if pair[0]), key=lambda pair: -pair[0])
        lines = [tensor.origin for _, tensor in on_tile if tensor.origin]
        raise OutOfMemoryError(
            f"out of memory: tile {tile} of IPU {ipu} would hold {bytes_on_tile:,} bytes of what "
            f"is put there by hand, and has {limit:,}\n"
            + "\n".join(f"  alive: {_describe(*pair)}" for pair in on_tile[:_NAMED])
            + "".join(f"\n  where: {line}" for line in lines[:1]),
            report=report,
            fix="put it on more tiles, or let tiles hold more with the engine option "
            '{"debug.allowOutOfMemory": "true"}',
        )


def _is_by_hand(tensor: machine.Lifetime) -> bool:
    mapping = tensor.mapping
    return isinstance(mapping, machine.TileMapping) and mapping.by_hand is not None


def _find_fullest_tiles(tensors: Sequence[machine.Lifetime]) -> Iterator[tuple[int, int, int]]:
    """Yields (bytes, tile, step) of the fullest tile whenever a tensor begins to live."""
    permanent = [tensor for tensor in tensors if tensor.first is None]
    temporary = [tensor for tensor in tensors if tensor.first is not None]
    tile_bytes = sum((tensor.mapping.bytes_per_tile() for tensor in permanent), np.int64(0))
    if permanent:
        yield int(tile_bytes.max()), int(tile_bytes.argmax()), -1
    ends: dict[int, list[machine.Lifetime]] = {}
    for tensor in sorted(temporary, key=lambda tensor: tensor.first or 0):
        for step in [step for step in ends if step < (tensor.first or 0)]:
            tile_bytes = tile_bytes - sum(dead.mapping.bytes_per_tile() for dead in ends.pop(step))
        tile_bytes = tile_bytes + tensor.mapping.bytes_per_tile()
        ends.setdefault(tensor.last or 0, []).append(tensor)
        yield int(tile_bytes.max()), int(tile_bytes.argmax()), tensor.first or 0


def _describe(bytes_: int, tensor: machine.Lifetime) -> str:
    line = f", {tensor.origin}" if tensor.origin else ""
    return (
        f"'{tensor.path or tensor.owner}' {tensor.name}, {bytes_:,} bytes of it on that tile{line}"
    )
