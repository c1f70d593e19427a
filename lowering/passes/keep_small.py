"""Leaves small values where they are, whatever storage was asked for."""

from __future__ import annotations

from lowering.avals import size_in_bytes
from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.ops.storage import load_p, store_p
from lowering.passes.rewrite import Anywhere, rewritten


def keep_small(closed: ClosedJaxpr, minimum_bytes: int) -> ClosedJaxpr:
    """Takes out the stores and loads of values under `minimum_bytes`, at any depth.

    Before: whatever waits between uses is stored and loaded as the user asked, which may be not at
            all.
    After:  only what is worth the way to remote memory, or the gathering of its slices, is.
    """

    def is_small(eqn: JaxprEqn) -> bool:
        if eqn.primitive not in (store_p, load_p):
            return False
        return not eqn.params["storage"] or size_in_bytes(eqn.invars[0].aval) < minimum_bytes

    return rewritten(closed, Anywhere(is_small), lambda rewriter, eqn: rewriter.skip(eqn))
