"""Supersteps that users lay out on tiles by hand, as operations of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lowering import jaxpr, machine, ops
from lowering import run_branch as run_branch

LAUNCH_CYCLES = machine.LAUNCH
"""Cycles for starting the workers of a tile, which reports add to those of vertices."""

read_modelled_clock = ops.read_modelled_clock

BetweenIpus = ops.BetweenIpus
Placement = ops.Placement
Superstep = ops.Superstep
TileNumbers = ops.TileNumbers
TileRuns = ops.TileRuns


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


def tile_cycles_of(function: Callable[..., Any], operands: object, target: machine.Target) -> float:
    """Returns the modelled cycles in which one tile of a chip computes a function of arrays.

    Args:
      function: pure.
      operands: its argument: arrays, or their `jax.ShapeDtypeStruct`s.
      target: the chip.
    """
    return machine.estimate_tile_cycles(jaxpr.make_jaxpr(function)(operands), target)


def cycles_of_function(
    function: Callable[..., Any], operands: object, target: machine.Target
) -> int:
    """Returns the modelled cycles of a function of arrays on one IPU, by itself.

    Args:
      function: pure, but for calls of the host.
      operands: its argument: arrays, or their `jax.ShapeDtypeStruct`s.
      target: the chip.
    """
    return machine.estimate_function_cycles(jaxpr.make_jaxpr(function)(operands), target)


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
