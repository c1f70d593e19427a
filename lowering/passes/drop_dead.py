"""The removal of equations whose results nobody reads, in bodies too."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    jaxpr_of_equations_with_constants,
    map_sub_jaxprs,
    prune_equation,
    replace_equations,
    sub_jaxprs,
    unique_variables,
)
from lowering.ops import ControlFlow, repeat_p


def drop_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Keeps only the equations on which a result or an effect depends.

    Before: any jaxpr; differentiation leaves forward results behind that only it needed.
    After:  every equation, at any depth, has an effect or a reader. Control flow and calls have
            only the results, operands and loop variables that are needed, as far as JAX drops
            those: loop variables of `while` and of our own loops stay, since the error at the end
            of a data set reports them.
    """
    return _Dropper().prune_body(closed)


@dc.dataclass(slots=True)
class _Dropper:
    """A rewriter of bodies; equations that share a body go on sharing it."""

    bodies: dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]] = dc.field(
        default_factory=dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]]
    )

    def prune_body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        key = id(closed.jaxpr), *map(id, closed.consts)
        if key not in self.bodies:
            self.bodies[key] = closed, self.prune_unread_equations(closed)
        return self.bodies[key][1]

    def prune_unread_equations(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        live = set(unique_variables(jaxpr.outvars))
        kept_eqns: list[JaxprEqn] = []
        for eqn in reversed(jaxpr.eqns):
            used = [var in live for var in eqn.outvars]
            pruned = self.prune_bodies_of_equation(eqn, used) if any(used) or eqn.effects else None
            if pruned is not None:
                kept_eqns.append(pruned)
                live.update(unique_variables(pruned.invars))
        return ClosedJaxpr(replace_equations(jaxpr, kept_eqns[::-1], jaxpr.outvars), closed.consts)

    def prune_bodies_of_equation(self, eqn: JaxprEqn, used: Sequence[bool]) -> JaxprEqn | None:
        """Returns an equation with smaller bodies; None for one that nobody needs."""
        if any(True for _ in sub_jaxprs(eqn)):
            eqn = map_sub_jaxprs(eqn, self.prune_body)
        if eqn.primitive.name in ("while", repeat_p.name) and eqn.params.get("pipeline") is None:
            return _drop_unread_constants_of_loop(eqn)
        return prune_equation(eqn, used)


def _drop_unread_constants_of_loop(eqn: JaxprEqn) -> JaxprEqn:
    flow = ControlFlow.view_of_equation(eqn)
    pairs = zip(flow.bodies, flow.constants, strict=True)
    smaller = [_drop_unread_constants(body, eqn.invars[part]) for body, part in pairs]
    return flow.replace_bodies_and_constants(
        [body for body, _ in smaller], [constants for _, constants in smaller]
    )


def _drop_unread_constants(
    body: ClosedJaxpr, constants: Sequence[Atom]
) -> tuple[ClosedJaxpr, list[Atom]]:
    """Returns a body with only those of a loop's constants that it reads."""
    jaxpr = body.jaxpr
    read = set(unique_variables([*jaxpr.outvars, *(a for eqn in jaxpr.eqns for a in eqn.invars)]))
    read_constants = [i for i in range(len(constants)) if jaxpr.invars[i] in read]
    if len(read_constants) == len(constants):
        return body, list(constants)
    invars = [*(jaxpr.invars[i] for i in read_constants), *jaxpr.invars[len(constants) :]]
    return jaxpr_of_equations_with_constants(body, invars, jaxpr.outvars, jaxpr.eqns), [
        constants[i] for i in read_constants
    ]
