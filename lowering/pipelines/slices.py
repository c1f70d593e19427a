"""Slices of a jaxpr: the equations that some of its values need, and no others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

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


# The longest run of equations that stands in for one kept value.
_MAX_CHAIN = 16


def recomputable(
    eqns: Sequence[JaxprEqn],
    required: Collection[Var],
    available: Collection[Var],
    is_cheap: Callable[[JaxprEqn], bool],
) -> list[JaxprEqn]:
    """Equations to be run once more, so that fewer of the required values must be kept.

    Args:
      eqns: those that make the values, in order.
      required: what somebody reads later.
      available: what that reader has in any case.
      is_cheap: whether an equation may be run twice.

    Returns:
      The equations, in order; each reads available, required or recomputed values only.
    """
    maker = {var: eqn for eqn in eqns for var in eqn.outvars}
    kept = set(required)
    again: set[int] = set()

    def chain(eqn: JaxprEqn, rerun: set[int], depth: int) -> bool:
        """Whether the equation can run without more being kept; adds what must run to `rerun`."""
        if not is_cheap(eqn) or depth == _MAX_CHAIN:
            return False
        for operand in variables(eqn.invars):
            if operand in available or operand in kept:
                continue
            before = maker.get(operand)
            if before is None or not (id(before) in rerun or chain(before, rerun, depth + 1)):
                return False
        rerun.add(id(eqn))
        return len(rerun) <= _MAX_CHAIN

    for eqn in reversed(eqns):
        if any(var in kept for var in eqn.outvars):
            rerun: set[int] = set()
            if chain(eqn, rerun, 0):
                kept -= set(eqn.outvars)
                again |= rerun
    return [eqn for eqn in eqns if id(eqn) in again]
