"""Supersteps that users lay out on tiles by hand, as operations of a program."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence

import jax
import numpy as np

from lowering import jaxpr, machine, ops

Superstep = ops.Superstep


def linear_tile_bounds(
    elements: int, element_bytes: int, tiles: int, **settings: int
) -> np.ndarray:
    """Returns int64 [used + 1]: tile i of a linear mapping has elements bounds[i] to bounds[i + 1].

    Args:
      elements: elements of the tensor.
      element_bytes: the size of one.
      tiles: how many tiles there are.
      **settings: `minimum_bytes` of a tile and elements of a `grain`, where they are not PopLibs'.
    """
    return machine.map_linearly(elements, element_bytes, tiles, **settings).bounds()


def estimate_tile_cycles(
    function: Callable[..., object], operands: Sequence[jax.ShapeDtypeStruct], chip: machine.Target
) -> int:
    """Returns the cycles, as the planner has them, of a function that one tile runs by itself.

    Args:
      function: of arrays that lie on the tile.
      operands: their shapes.
      chip: the tile's.
    """
    tile = dc.replace(chip, tiles_per_ipu=1, sync_cycles=0)
    return machine.estimate_function_cycles(jaxpr.trace_flat(function, operands), tile)


def run_superstep(
    function: Callable[..., Sequence[jax.Array]], operands: Sequence[jax.Array], step: Superstep
) -> list[jax.Array]:
    """Runs a function of whole variables as one superstep with a cost of its own.

    Args:
      function: pure; the operands -> the variables that it changes, with what it leaves in them.
      operands: the variables that it reads or changes, 1-d.
      step: what it costs.
    """
    body = jaxpr.make_jaxpr(function)(*operands)
    return ops.superstep_p.bind(*operands, body=body, step=step)
