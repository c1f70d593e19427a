"""Leaves values where they are that are small, or that nobody asked to have elsewhere."""

from __future__ import annotations

from lowering.avals import size_in_bytes
from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.ops.storage import load_p, store_p
from lowering.options import Options
from lowering.passes.rewrite import Anywhere, rewritten


def keep_small(closed: ClosedJaxpr, options: Options) -> ClosedJaxpr:
    """Takes out stores and loads, at any depth, where they are not worth it or not possible.

    Before: whatever waits between uses is stored and loaded as the user asked, which may be not at
            all.
    After:  only what is worth the way to remote memory, or the gathering of its slices, is; where
            there is no remote memory, only what was asked for.
    """

    def stays(eqn: JaxprEqn) -> bool:
        if eqn.primitive not in (store_p, load_p):
            return False
        storage = eqn.params["storage"]
        if not storage or (storage.by_default and not options.has_remote):
            return True
        return size_in_bytes(eqn.invars[0].aval) < options.minimum_remote_bytes

    return rewritten(closed, Anywhere(stays), lambda rewriter, eqn: rewriter.skip(eqn))
