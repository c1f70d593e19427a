"""Leaves small values where they are, whatever storage was asked for."""

from __future__ import annotations

from lowering.avals import size_in_bytes
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, trace_flat
from lowering.ops.storage import load_p, store_p
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def keep_small(closed: ClosedJaxpr, minimum_bytes: int) -> ClosedJaxpr:
    """Takes out the stores and loads of values under `minimum_bytes`, at any depth.

    Before: whatever waits between uses is stored and loaded as the user asked.
    After:  only what is worth the way to remote memory, or the gathering of its slices, is.
    """

    def is_small(eqn: JaxprEqn) -> bool:
        stored = eqn.primitive in (store_p, load_p)
        return stored and size_in_bytes(eqn.invars[0].aval) < minimum_bytes

    def take_out(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        rewriter.open(eqn, trace_flat(lambda x: [x], [eqn.invars[0].aval]))

    return rewritten(closed, Anywhere(is_small), take_out)
