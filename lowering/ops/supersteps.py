"""The primitive of a superstep that the user has laid out on tiles by hand: vertices, or a copy.

Its operands are whole variables, its results those that it writes, with what it leaves in them.
What it computes is a body, gathers and scatters included; what it costs was decided with its tiles
and is a `Superstep`, which the machine model reads and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable

from lowering.ground import BetweenIpus as BetweenIpus
from lowering.ground import Placement as Placement
from lowering.ground import Superstep as Superstep
from lowering.ground import TileNumbers as TileNumbers
from lowering.ground import TileRuns as TileRuns
from lowering.jaxprs import (
    Aval,
    ClosedJaxpr,
    Effect,
    EquationFinder,
    JaxprEqn,
    function_of_jaxpr,
)
from lowering.ops.define import define_primitive_with_body
from lowering.ops.types import Array


def _effects_of_superstep(*_: Aval, body: ClosedJaxpr, step: Superstep) -> set[Effect]:
    return set()


def _function_of_superstep(*, body: ClosedJaxpr, step: Superstep) -> Callable[..., list[Array]]:
    return function_of_jaxpr(body)


superstep_p = define_primitive_with_body(
    "ipu_superstep", _effects_of_superstep, _function_of_superstep
)


def needs_room_on_tiles(closed: ClosedJaxpr) -> bool:
    """Returns whether a function has values on tiles by hand, which must fit them.

    An engine's graph places none here: the engine checks its memory itself.
    """
    return EquationFinder(_places_values)(closed.jaxpr)


def _places_values(eqn: JaxprEqn) -> bool:
    if eqn.primitive is not superstep_p:
        return False
    step: Superstep = eqn.params["step"]
    return any(place is not None for place in (*step.operand_places, *step.result_places))
