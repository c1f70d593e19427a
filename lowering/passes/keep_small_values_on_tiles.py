"""The removal of stores and loads that are not worth it, or that nobody asked for."""

from __future__ import annotations

from lowering.ground import Options
from lowering.jaxprs import ClosedJaxpr, EquationFinder, JaxprEqn, rewrite_equations, size_in_bytes
from lowering.ops import load_p, store_p


def keep_small_values_on_tiles(closed: ClosedJaxpr, options: Options) -> ClosedJaxpr:
    """Removes stores and loads, at any depth, where they are not worth it or not possible.

    Before: values are stored and loaded between uses as the user asked, which may be not at all.
    After:  only values that are large enough are stored; without streaming memory, only those for
            which the user asked.
    """

    def is_not_worth_storing(eqn: JaxprEqn) -> bool:
        if eqn.primitive not in (store_p, load_p):
            return False
        storage = eqn.params["storage"]
        if not storage or (storage.by_default and not options.has_remote):
            return True
        return size_in_bytes(eqn.invars[0].aval) < options.minimum_remote_bytes

    return rewrite_equations(
        closed,
        EquationFinder(is_not_worth_storing),
        lambda rewriter, eqn: rewriter.replace_by_operands(eqn),
    )
