"""Cycle counts on tiles."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ipujax.operators import Superstep, read_modelled_clock, run_superstep
from ipujax.tessellate.core.tile_array import TileShardedArray, tile_data_barrier
from ipujax.tessellate.core.tile_array_primitives import runs_on_ipu
from ipujax.tessellate.exceptions import check


@check.guard
def ipu_cycle_count(*args: TileShardedArray, sync: bool = False) -> tuple[TileShardedArray, ...]:
    """Reads the modelled clock as soon as values are ready.

    Args:
      *args: values on tiles, at least one.
      sync: whether tiles wait for each other; the model's clock is one for all.

    Returns:
      The values, and uint32 [tiles of the first, 2]: the low and the high 32 bits of the cycles
      since the function, or the body of a loop, began; 0 on a host.
    """
    del sync
    tiles, *_ = [value.tiles for value in args]
    waited = tile_data_barrier(*args) if len(args) > 1 else args
    if not runs_on_ipu(*(value.array for value in args)):
        return (*waited, TileShardedArray(np.zeros((len(tiles), 2), np.uint32), tiles))
    (counts,) = run_superstep(
        lambda clock: [jnp.zeros((len(tiles), 2), jnp.uint32).at[:, 0].set(clock)],
        [read_modelled_clock()],
        Superstep(name=""),  # which costs nothing
    )
    return (*waited, TileShardedArray(counts, tiles))


ipu_hw_cycle_count = ipu_cycle_count


def ipu_cycle_count_overhead() -> int:
    """Returns the cycles that a reading of the clock takes: 0 in the model."""
    return 0
