"""Slices of a jaxpr: the equations that some of its values need, and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lowering.equations import variables
from lowering.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Var
from lowering.ops.collectives import REPLICAS


def needed_for(
    eqns: Sequence[JaxprEqn], wanted: Iterable[Atom], known: Collection[Var] = ()
) -> list[JaxprEqn]:
    """The equations, in order, that `wanted` depends on, given that `known` need not be made."""
    live = set(variables(wanted)).difference(known)
    kept: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if any(var in live for var in eqn.outvars):
            kept.append(eqn)
            live.update(v for v in variables(eqn.invars) if v not in known)
    return kept[::-1]


def read_from_outside(eqns: Sequence[JaxprEqn], results: Iterable[Atom]) -> list[Var]:
    """What a run of equations (and its results) reads and does not make, in order of use."""
    made = {var for eqn in eqns for var in eqn.outvars}
    used = (a for eqn in eqns for a in eqn.invars)
    return [v for v in variables([*used, *results]) if v not in made]


def readers(body: ClosedJaxpr, var: Var) -> list[JaxprEqn]:
    """The equations of a body that read a variable."""
    return [eqn for eqn in body.jaxpr.eqns if any(atom is var for atom in eqn.invars)]


def dependent(eqns: Sequence[JaxprEqn], sources: Iterable[Var]) -> set[Var]:
    """All variables that depend on one of the sources, those among them."""
    reached = set(sources)
    for eqn in eqns:
        if not reached.isdisjoint(variables(eqn.invars)):
            reached.update(eqn.outvars)
    return reached


def acts(eqn: JaxprEqn) -> bool:
    """Whether an equation does what must happen once; talking to replicas is not that."""
    return any(getattr(effect, "name", None) != REPLICAS for effect in eqn.effects)


def with_actions(eqns: Sequence[JaxprEqn], kept: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """The kept equations, and those that act (prints, queues), with all that they need."""
    actions = [e for e in eqns if acts(e)]
    needed = needed_for(eqns, [a for e in actions for a in e.invars])
    chosen = {id(e) for e in (*kept, *actions, *needed)}
    return [e for e in eqns if id(e) in chosen]
