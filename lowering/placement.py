"""The shards of a jaxpr's equations: read, looked up, and written out where marks leave them open.

The compiler itself places whole programs with `lowering.passes.place`; these functions are for
tools that look at jaxprs, or change them, before they are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowering import marks
from lowering.equations import variables
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    frames_key,
    map_sub_jaxprs,
    name_stack,
    with_eqns,
    with_scope,
)
from lowering.passes.inline_calls import inline_calls
from lowering.passes.place import PlacedBody, place, shards_used
from lowering.units import HOST


def marked_shard(eqn: JaxprEqn) -> int | None:
    """The shard that the equation's own marks name; a backward equation has its forward twin's."""
    return marks.read(name_stack(eqn)).shard


def producers(jaxpr: Jaxpr) -> dict[Var, int]:
    """The index of the equation that gives each variable."""
    return {var: index for index, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}


def ancestors(jaxpr: Jaxpr, roots: Iterable[int]) -> list[int]:
    """The indices, in order, of the given equations and of all that they depend on."""
    needed, makes = set(roots), producers(jaxpr)
    for index in range(len(jaxpr.eqns) - 1, -1, -1):
        if index in needed:
            needed.update(_makers(jaxpr.eqns[index], makes))
    return sorted(needed)


def colocated_shard(eqn: JaxprEqn, jaxpr: Jaxpr) -> int | None:
    """The shard of what an unmarked equation belongs to.

    For a backward equation that is its forward twin, the equation from the same place of the
    user's code; failing that, and for all others, the first operand that comes from a marked
    equation.
    """
    if marks.read(name_stack(eqn)).backward:
        key = frames_key(eqn)
        forward = (e for e in jaxpr.eqns if not marks.read(name_stack(e)).backward)
        twins = {marked_shard(e) for e in forward if frames_key(e) == key} - {None}
        if len(twins) == 1:  # more say nothing: one line of the user's built several layers
            return twins.pop()
    operands = _makers(eqn, producers(jaxpr))
    shards = (marked_shard(jaxpr.eqns[index]) for index in operands)
    return next((shard for shard in shards if shard is not None), None)


def propagated(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Marks the equations that belong to marked ones with the shard that `place` gives them.

    Before: any jaxpr.
    After:  calls with marks inside are opened. Backward equations and those that depend on marked
            ones are marked; those upstream of all marks are not. The placement of the whole is
            what it was.
    """
    if not shards_used(closed):
        return closed
    return _written(place(inline_calls(closed)), "")


def _written(placed: PlacedBody, enclosing: str) -> ClosedJaxpr:
    jaxpr = placed.jaxpr.jaxpr
    # Inputs of a body have homes where the operands have them by marks.
    inputs = zip(jaxpr.invars, placed.inputs, strict=True)
    reached = {var for var, home in inputs if home is not None}
    eqns: list[JaxprEqn] = []
    for index, (eqn, home) in enumerate(zip(jaxpr.eqns, placed.homes, strict=True)):
        stack = marks.joined(enclosing, name_stack(eqn))
        marked = marks.read(stack)
        below = not reached.isdisjoint(variables(eqn.invars))
        if index in placed.bodies:
            eqns.append(_written_inside(eqn, placed.bodies[index], stack))
            reached.update(eqn.outvars)
            continue
        follows = home is not None and home != HOST and (below or marked.backward)
        if follows and marked.shard is None:
            eqn = with_scope(eqn, marks.write(marks.SHARD, str(home)))
        if follows or marked.shard is not None:
            reached.update(eqn.outvars)
        eqns.append(eqn)
    return ClosedJaxpr(with_eqns(jaxpr, eqns, jaxpr.outvars), placed.jaxpr.consts)


def _written_inside(eqn: JaxprEqn, bodies: Sequence[PlacedBody], stack: str) -> JaxprEqn:
    by_body = {id(body.jaxpr.jaxpr): body for body in bodies}
    return map_sub_jaxprs(eqn, lambda inner: _written(by_body[id(inner.jaxpr)], stack))


def _makers(eqn: JaxprEqn, makes: dict[Var, int]) -> list[int]:
    return [makes[var] for var in variables(eqn.invars) if var in makes]
