"""Removes equations whose results nobody reads, in bodies too."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering.control_flow import ControlFlow
from lowering.equations import part_of, variables
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    map_sub_jaxprs,
    prune_equation,
    sub_jaxprs,
    with_eqns,
)
from lowering.ops.streams import repeat_p


def drop_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Keeps what a result or an effect depends on.

    Before: any jaxpr; differentiation leaves forward results behind that only it needed.
    After:  every equation, at any depth, has an effect or a reader. Control flow and calls have
            only the results, operands and loop variables that somebody needs, as far as JAX drops
            those: loop variables of `while` and of our own loops stay, since the errors of a data
            set that ends tell them.
    """
    return _Dropper().body(closed)


@dc.dataclass(slots=True)
class _Dropper:
    """Remembers the bodies, so that equations that share one go on sharing it."""

    bodies: dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]] = dc.field(
        default_factory=dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]]
    )

    def body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        key = id(closed.jaxpr), *map(id, closed.consts)
        if key not in self.bodies:
            self.bodies[key] = closed, self.pruned(closed)
        return self.bodies[key][1]

    def pruned(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        live = set(variables(jaxpr.outvars))
        kept: list[JaxprEqn] = []
        for eqn in reversed(jaxpr.eqns):
            used = [var in live for var in eqn.outvars]
            pruned = self.equation(eqn, used) if any(used) or eqn.effects else None
            if pruned is not None:
                kept.append(pruned)
                live.update(variables(pruned.invars))
        return ClosedJaxpr(with_eqns(jaxpr, kept[::-1], jaxpr.outvars), closed.consts)

    def equation(self, eqn: JaxprEqn, used: Sequence[bool]) -> JaxprEqn | None:
        """An equation with smaller bodies; None for one that nobody needs."""
        if any(True for _ in sub_jaxprs(eqn)):
            eqn = map_sub_jaxprs(eqn, self.body)
        if eqn.primitive.name in ("while", repeat_p.name) and eqn.params.get("pipeline") is None:
            return _loop_without_unread(eqn)
        return prune_equation(eqn, used)


def _loop_without_unread(eqn: JaxprEqn) -> JaxprEqn:
    flow = ControlFlow.of(eqn)
    pairs = zip(flow.bodies, flow.constants, strict=True)
    smaller = [_without_unread(body, eqn.invars[part]) for body, part in pairs]
    return flow.rebuilt([body for body, _ in smaller], [constants for _, constants in smaller])


def _without_unread(body: ClosedJaxpr, constants: Sequence[Atom]) -> tuple[ClosedJaxpr, list[Atom]]:
    """A body whose first arguments are constants of a loop: only those that it reads."""
    jaxpr = body.jaxpr
    read = set(variables([*jaxpr.outvars, *(a for eqn in jaxpr.eqns for a in eqn.invars)]))
    kept = [i for i in range(len(constants)) if jaxpr.invars[i] in read]
    if len(kept) == len(constants):
        return body, list(constants)
    invars = [*(jaxpr.invars[i] for i in kept), *jaxpr.invars[len(constants) :]]
    return part_of(body, invars, jaxpr.outvars, jaxpr.eqns), [constants[i] for i in kept]
