"""Slices of a jaxpr: the equations that some of its values need, and no others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    make_jaxpr_of,
)
from lowering.ops.collectives import REPLICAS


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """The atoms that are variables, each once, in order."""
    return list(dict.fromkeys(a for a in atoms if not isinstance(a, Literal)))


def renamed(atoms: Iterable[Atom], names: Mapping[Var, Any]) -> list[Any]:
    """The atoms, by their new names where they have one."""
    return [a if isinstance(a, Literal) else names.get(a, a) for a in atoms]


def values_of(atoms: Iterable[Atom], values: Mapping[Var, Any]) -> list[Any]:
    """The value of each atom."""
    return [a.val if isinstance(a, Literal) else values[a] for a in atoms]


def needed_for(
    eqns: Sequence[JaxprEqn], wanted: Iterable[Atom], known: Collection[Var] = ()
) -> list[JaxprEqn]:
    """The equations, in order, that `wanted` depends on, given that `known` need not be made."""
    live = set(variables(wanted)) - set(known)
    kept: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if any(var in live for var in eqn.outvars):
            kept.append(eqn)
            live.update(v for v in variables(eqn.invars) if v not in known)
    return kept[::-1]


def read_from_outside(eqns: Sequence[JaxprEqn], results: Iterable[Atom]) -> list[Var]:
    """What a run of equations (and its results) reads and does not make, in order of use."""
    made = {var for eqn in eqns for var in eqn.outvars}
    used = [a for eqn in eqns for a in eqn.invars]
    return [v for v in variables([*used, *results]) if v not in made]


def dependent(eqns: Sequence[JaxprEqn], sources: Iterable[Var]) -> set[Var]:
    """All variables that depend on one of the sources, those among them."""
    found = set(sources)
    for eqn in eqns:
        if any(v in found for v in variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def sliced(
    jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """A jaxpr of some of another's equations."""
    return make_jaxpr_of(invars, outvars, eqns, jaxpr.debug_info)


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

    def chain(eqn: JaxprEqn, found: set[int], depth: int) -> bool:
        """Whether the equation can run without more being kept; adds what must run to `found`."""
        if not is_cheap(eqn) or depth == _MAX_CHAIN:
            return False
        for operand in variables(eqn.invars):
            if operand in available or operand in kept:
                continue
            before = maker.get(operand)
            if before is None or not (id(before) in found or chain(before, found, depth + 1)):
                return False
        found.add(id(eqn))
        return len(found) <= _MAX_CHAIN

    for eqn in reversed(eqns):
        if any(var in kept for var in eqn.outvars):
            found: set[int] = set()
            if chain(eqn, found, 0):
                kept -= set(eqn.outvars)
                again |= found
    return [eqn for eqn in eqns if id(eqn) in again]
