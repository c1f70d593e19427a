"""The most bytes that are alive at once while equations run in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowering.jaxprs import Atom, JaxprEqn, Var, size_in_bytes, unique_variables


def peak_of_live_bytes(
    eqns: Sequence[JaxprEqn],
    results: Sequence[Atom],
    counts: Callable[[JaxprEqn], bool] = lambda eqn: True,
) -> int:
    """Returns the most bytes that are alive while an equation runs.

    A value is alive from the equation that makes it to its last reader. Equations that nothing
    needs do not run.

    Args:
      eqns: the equations, in order.
      results: the values that are read at the end.
      counts: returns whether the bytes during an equation count.
    """
    alive = {*unique_variables(results)}
    now, peak = sum(size_in_bytes(var.aval) for var in alive), 0
    for eqn in reversed(eqns):
        made = [var for var in eqn.outvars if var in alive]
        if not made and not eqn.effects:
            continue
        operands: list[Var] = [var for var in unique_variables(eqn.invars) if var not in alive]
        alive.update(operands)
        now += sum(size_in_bytes(var.aval) for var in operands)
        if counts(eqn):
            peak = max(peak, now)
        alive.difference_update(made)
        now -= sum(size_in_bytes(var.aval) for var in made)
    return peak
