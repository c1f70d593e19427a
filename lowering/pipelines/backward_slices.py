"""The backward slices of a jaxpr: the equations that some of its values need, and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lowering.jaxprs import Atom, ClosedJaxpr, JaxprEqn, Var, unique_variables
from lowering.ops import REPLICAS


def select_equations_for(
    eqns: Sequence[JaxprEqn], results: Iterable[Atom], available: Collection[Var] = ()
) -> list[JaxprEqn]:
    """Returns the equations, in order, that results depend on, given that some values exist."""
    live = set(unique_variables(results)).difference(available)
    needed_eqns: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if any(var in live for var in eqn.outvars):
            needed_eqns.append(eqn)
            live.update(v for v in unique_variables(eqn.invars) if v not in available)
    return needed_eqns[::-1]


def variables_read_from_outside(eqns: Sequence[JaxprEqn], results: Iterable[Atom]) -> list[Var]:
    """Returns the variables that equations and results read and do not make, in order of use."""
    values_inside = {var for eqn in eqns for var in eqn.outvars}
    operands = (a for eqn in eqns for a in eqn.invars)
    return [v for v in unique_variables([*operands, *results]) if v not in values_inside]


def equations_reading(body: ClosedJaxpr, var: Var) -> list[JaxprEqn]:
    """Returns the equations of a body that read a variable."""
    return [eqn for eqn in body.jaxpr.eqns if any(atom is var for atom in eqn.invars)]


def variables_depending_on(eqns: Sequence[JaxprEqn], sources: Iterable[Var]) -> set[Var]:
    """Returns all variables that depend on one of the sources, those among them."""
    reached = set(sources)
    for eqn in eqns:
        if not reached.isdisjoint(unique_variables(eqn.invars)):
            reached.update(eqn.outvars)
    return reached


def has_effect_besides_collectives(eqn: JaxprEqn) -> bool:
    """Returns whether an equation has an effect other than talking to replicas."""
    return any(getattr(effect, "name", None) != REPLICAS for effect in eqn.effects)


def add_equations_with_actions(
    eqns: Sequence[JaxprEqn], selected_eqns: Sequence[JaxprEqn]
) -> list[JaxprEqn]:
    """Returns selected equations, and those that act (prints, queues), with all they need."""
    actions = [e for e in eqns if has_effect_besides_collectives(e)]
    needed = select_equations_for(eqns, [a for e in actions for a in e.invars])
    ids_to_keep = {id(e) for e in (*selected_eqns, *actions, *needed)}
    return [e for e in eqns if id(e) in ids_to_keep]
