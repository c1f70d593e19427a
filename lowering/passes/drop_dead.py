"""The removal of equations whose results nobody reads, in bodies too."""

from __future__ import annotations

import dataclasses as dc
import operator
from collections.abc import Sequence
from typing import Any

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    body_of_call,
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
    arguments_read: dict[Jaxpr, list[bool]] = dc.field(default_factory=dict[Jaxpr, list[bool]])

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
        kept_eqns.reverse()
        if len(kept_eqns) == len(jaxpr.eqns) and all(map(operator.is_, kept_eqns, jaxpr.eqns)):
            return closed
        return ClosedJaxpr(replace_equations(jaxpr, kept_eqns, jaxpr.outvars), closed.consts)

    def prune_bodies_of_equation(self, eqn: JaxprEqn, used: Sequence[bool]) -> JaxprEqn | None:
        """Returns an equation with smaller bodies; None for one that nobody needs."""
        bodies = sub_jaxprs(eqn)
        if bodies:
            smaller = map_sub_jaxprs(eqn, self.prune_body)
            if not all(map(operator.is_, sub_jaxprs(smaller), bodies)):
                eqn = smaller
            # JAX would prune bodies in bodies once more for each level around them.
            if all(used) and self.reads_all_operands(eqn):
                return eqn
        if eqn.primitive.name in ("while", repeat_p.name) and eqn.params.get("pipeline") is None:
            return _drop_unread_constants_of_loop(eqn)
        return prune_equation(eqn, used)

    def reads_all_operands(self, eqn: JaxprEqn) -> bool:
        """Returns whether a call, or one of a condition's branches, reads each operand."""
        if body_of_call(eqn) is None and eqn.primitive.name != "cond":
            return False
        reads_of_bodies = map(self.which_arguments_are_read, sub_jaxprs(eqn))
        return all(map(any, zip(*reads_of_bodies, strict=True)))

    def which_arguments_are_read(self, jaxpr: Jaxpr) -> list[bool]:
        """Returns, for each argument of a body, whether the body reads it."""
        if jaxpr not in self.arguments_read:
            read = _read_variables(jaxpr)
            self.arguments_read[jaxpr] = [var in read for var in jaxpr.invars]
        return self.arguments_read[jaxpr]


def _read_variables(jaxpr: Jaxpr) -> set[Var]:
    """Returns the variables that a jaxpr's equations read, or that it returns."""
    operands = (atom for eqn in jaxpr.eqns for atom in eqn.invars)
    return set(unique_variables([*jaxpr.outvars, *operands]))


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
    read = _read_variables(jaxpr)
    read_constants = [i for i in range(len(constants)) if jaxpr.invars[i] in read]
    if len(read_constants) == len(constants):
        return body, list(constants)
    invars = [*(jaxpr.invars[i] for i in read_constants), *jaxpr.invars[len(constants) :]]
    return jaxpr_of_equations_with_constants(body, invars, jaxpr.outvars, jaxpr.eqns), [
        constants[i] for i in read_constants
    ]
