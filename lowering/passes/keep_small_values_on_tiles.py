"""The removal of stores and loads that are not worth it, or that nobody asked for."""

from __future__ import annotations

from lowering.ground import Options
from lowering.jaxprs import ClosedJaxpr, EquationFinder, JaxprEqn, rewrite_equations, size_in_bytes
from lowering.ops import Storage, load_p, store_p


def keep_small_values_on_tiles(closed: ClosedJaxpr, options: Options) -> ClosedJaxpr:
    """Removes stores and loads, at any depth, where they are not worth it or not possible.

    Before: values are stored and loaded between uses as the user asked, which may be not at all.
    After:  only values that are large enough are stored; without streaming memory, no optimizer's
            state, and of other values only those for which the user asked.
    """

    def is_not_worth_storing(eqn: JaxprEqn) -> bool:
        if eqn.primitive not in (store_p, load_p):
            return False
        storage = eqn.params["storage"]
        if not storage or (not options.has_remote and (storage.by_default or _is_state(storage))):
            return True
        return size_in_bytes(eqn.invars[0].aval) < options.minimum_remote_bytes

    return rewrite_equations(
        closed,
        EquationFinder(is_not_worth_storing),
        lambda rewriter, eqn: rewriter.replace_by_operands(eqn),
    )


def asks_to_offload_state(closed: ClosedJaxpr) -> bool:
    """Returns whether a user asked to keep an optimizer's state in streaming memory."""
    return EquationFinder(
        lambda eqn: (
            eqn.primitive is store_p
            and _is_state(eqn.params["storage"])
            and not eqn.params["storage"].by_default
        )
    )(closed.jaxpr)


def _is_state(storage: Storage) -> bool:
    return storage.remote and storage.what == "state"
