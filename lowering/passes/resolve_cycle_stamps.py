"""The replacement of readings of the modelled clock, by what the equations before them take."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    Var,
    equations_with_bodies,
    jaxpr_of_equations,
    rewrite_equations,
    sub_jaxprs,
    unique_variables,
)
from lowering.ops import stamp_p


def resolve_cycle_stamps(
    closed: ClosedJaxpr, count_cycles: Callable[[ClosedJaxpr], int] | None
) -> ClosedJaxpr:
    """Replaces `ipu_cycle_stamp`s, at any depth.

    Within the body of a loop or a branch the clock begins at 0.

    Before: calls are inlined, and equations are in the order in which they were traced.
    After:  no equation is an `ipu_cycle_stamp`.

    Args:
      closed: any jaxpr.
      count_cycles: the modelled cycles of a jaxpr; None for a clock that stands still.
    """
    finder = EquationFinder(lambda eqn: eqn.primitive is stamp_p)
    if not finder(closed.jaxpr):
        return closed
    stamps: dict[int, int] = {}
    _read_clock(closed.jaxpr, count_cycles or (lambda _: 0), finder, stamps)

    def replace(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        cycles = stamps[id(eqn)] % 2**32
        rewriter.replace_by_function(eqn, lambda *_: [jnp.uint32(cycles)])

    return rewrite_equations(closed, finder, replace)


def _read_clock(
    jaxpr: Jaxpr,
    count_cycles: Callable[[ClosedJaxpr], int],
    finder: EquationFinder,
    stamps: dict[int, int],
) -> None:
    """Writes the time of each stamp of a jaxpr, and of its bodies, by the equation's id."""
    passed, since_last, readings = 0, list[JaxprEqn](), dict[Atom, int]()
    for eqn in jaxpr.eqns:
        if finder.test(eqn):
            passed += count_cycles(_cut(jaxpr, since_last)) if since_last else 0
            readings[eqn.outvars[0]], since_last = passed, []
            stamps[id(eqn)] = passed - sum(readings.get(atom, 0) for atom in eqn.invars)
        else:
            since_last.append(eqn)
    for eqn in equations_with_bodies(jaxpr):
        for body in sub_jaxprs(eqn):
            if finder(body):
                _read_clock(body, count_cycles, finder, stamps)


def _cut(jaxpr: Jaxpr, eqns: list[JaxprEqn]) -> ClosedJaxpr:
    """Returns some consecutive equations as a jaxpr of what they read, which gives all of it."""
    made = [var for eqn in eqns for var in eqn.outvars]
    known = {*made}
    read = unique_variables(atom for eqn in eqns for atom in eqn.invars)
    operands: list[Var] = [var for var in read if var not in known]
    return jaxpr_of_equations(jaxpr, operands, made, eqns)
