"""The primitive of a superstep that the user has laid out on tiles by hand: vertices, or a copy.

Its operands are whole variables, its results those that it writes, with what it leaves in them.
What it computes is a body, gathers and scatters included; what it costs was decided with its tiles
and is a `Superstep`, which the machine model reads and nothing else changes.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

from lowering.jaxprs import Aval, ClosedJaxpr, Effect, function_of_jaxpr
from lowering.ops.define import define_primitive_with_body
from lowering.ops.types import Array


@dc.dataclass(frozen=True, slots=True)
class Superstep:
    """The cost of one run of a compute set or a copy, on the slowest or fullest of its tiles.

    Attributes:
      name: the user's name for it.
      kind: the vertices' type, or "" for a copy, which computes nothing.
      tile_cycles: cycles of the vertices on the slowest tile.
      exchange_bytes: bytes that the busiest tile receives or sends before the vertices run.
      temporary_bytes: copies of remote operands on the tile that has most of them.
      vertices_per_tile: vertices of the tile that has most; 0 for a copy.
      tiles: how many tiles have any.
      is_estimated: whether nobody said what the vertices take.
    """

    name: str
    kind: str
    tile_cycles: float
    exchange_bytes: int
    temporary_bytes: int
    vertices_per_tile: int
    tiles: int
    is_estimated: bool = False


def _effects_of_superstep(*_: Aval, body: ClosedJaxpr, step: Superstep) -> set[Effect]:
    return set()


def _function_of_superstep(*, body: ClosedJaxpr, step: Superstep) -> Callable[..., list[Array]]:
    return function_of_jaxpr(body)


superstep_p = define_primitive_with_body(
    "ipu_superstep", _effects_of_superstep, _function_of_superstep
)
