"""Removes equations whose results nobody reads."""

from __future__ import annotations

from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Literal, with_eqns


def drop_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Keeps what a result or an effect depends on.

    Before: any jaxpr; differentiation leaves forward results behind that only it needed.
    After:  every equation of the top level has an effect or a reader. Bodies stay as they are.
    """
    jaxpr = closed.jaxpr
    live = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(var in live for var in eqn.outvars):
            kept.append(eqn)
            live.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    if len(kept) == len(jaxpr.eqns):
        return closed
    return ClosedJaxpr(with_eqns(jaxpr, kept[::-1], jaxpr.outvars), closed.consts)
