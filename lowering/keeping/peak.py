"""The most bytes that are alive at once while equations run in order."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.jaxprs import Atom, JaxprEqn, Var, size_in_bytes, unique_variables


def peak_of_live_bytes(eqns: Sequence[JaxprEqn], results: Sequence[Atom]) -> int:
    """Returns the peak of the values alive between and in the equations that something needs.

    A value is alive from the equation that makes it to its last reader.
    """
    alive: set[Var] = set()
    now = peak = 0
    for reads, eqn in ((results, None), *((eqn.invars, eqn) for eqn in reversed(eqns))):
        made = [var for var in eqn.outvars if var in alive] if eqn is not None else []
        if eqn is not None and not made and not eqn.effects:
            continue
        new = [var for var in unique_variables(reads) if var not in alive]
        alive.update(new)
        now += sum(size_in_bytes(var.aval) for var in new)
        peak = max(peak, now)
        alive.difference_update(made)
        now -= sum(size_in_bytes(var.aval) for var in made)
    return peak
