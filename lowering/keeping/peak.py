"""The most bytes that are alive at once while equations run in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowering.jaxprs import Atom, JaxprEqn, Var, size_in_bytes, unique_variables


def peaks_of_live_bytes(
    eqns: Sequence[JaxprEqn], results: Sequence[Atom], counts: Callable[[JaxprEqn], bool]
) -> tuple[int, int]:
    """Returns the most bytes that are alive while any equation runs, and while certain ones do.

    A value is alive from the equation that makes it to its last reader. Equations that nothing
    needs do not run.

    Args:
      eqns: the equations, in order.
      results: the values that are read at the end.
      counts: returns whether an equation is one of those.
    """
    alive = {*unique_variables(results)}
    live_bytes = sum(size_in_bytes(var.aval) for var in alive)
    peak_of_all = peak_of_counted = 0
    for eqn in reversed(eqns):
        used_results = [var for var in eqn.outvars if var in alive]
        if not used_results and not eqn.effects:
            continue
        operands: list[Var] = [var for var in unique_variables(eqn.invars) if var not in alive]
        alive.update(operands)
        live_bytes += sum(size_in_bytes(var.aval) for var in operands)
        peak_of_all = max(peak_of_all, live_bytes)
        if live_bytes > peak_of_counted and counts(eqn):
            peak_of_counted = live_bytes
        alive.difference_update(used_results)
        live_bytes -= sum(size_in_bytes(var.aval) for var in used_results)
    return peak_of_all, peak_of_counted
