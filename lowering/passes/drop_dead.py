"""Removes equations whose results nobody reads, in bodies too."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering.control_flow import ControlFlow
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
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
        live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
        kept: list[JaxprEqn] = []
        for eqn in reversed(jaxpr.eqns):
            used = [var in live for var in eqn.outvars]
            pruned = self.equation(eqn, used) if any(used) or eqn.effects else None
            if pruned is not None:
                kept.append(pruned)
                live.update(atom for atom in pruned.invars if not isinstance(atom, Literal))
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
    bodies, constants = zip(*(_without_unread(b, eqn.invars[own]) for b, own in pairs), strict=True)
    return flow.rebuilt(bodies, constants)


def _without_unread(body: ClosedJaxpr, constants: Sequence[Atom]) -> tuple[ClosedJaxpr, list[Atom]]:
    """A body whose first arguments are constants of a loop: only those that it reads."""
    jaxpr = body.jaxpr
    read = {a for eqn in jaxpr.eqns for a in eqn.invars if not isinstance(a, Literal)}
    read.update(a for a in jaxpr.outvars if not isinstance(a, Literal))
    kept = [i for i in range(len(constants)) if jaxpr.invars[i] in read]
    if len(kept) == len(constants):
        return body, list(constants)
    invars = [*(jaxpr.invars[i] for i in kept), *jaxpr.invars[len(constants) :]]
    smaller = jaxpr.replace(invars=invars, debug_info=jaxpr.debug_info._replace(arg_names=None))
    return ClosedJaxpr(smaller, body.consts), [constants[i] for i in kept]
