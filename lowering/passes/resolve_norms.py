"""Turns statistics of normalisations into what the configuration says they are."""

from __future__ import annotations

from lowering.errors import CollectiveError
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, user_line
from lowering.ops.norms import PRIMITIVES, resolved, square_p
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten


def resolve_norms(closed: ClosedJaxpr, *, stable: bool, group: int, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.norms`, at any depth.

    Before: any jaxpr.
    After:  variances are computed in the form asked for; the statistics of batch normalisations
            that are shared by more than one replica have `cross_replica_sum`s.
    Raises: CollectiveError if `group`, the number of those replicas, does not divide `replicas`.
    """

    def resolve(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        if eqn.primitive is not square_p and replicas % group:
            raise CollectiveError(
                "norms.experimental.distributed_batch_norm_replica_group_size is "
                f"{group}, which must evenly divide the number of replicas, {replicas}",
                where=user_line(eqn),
                fix=f"set it to a divisor of {replicas}, or give the device another number of IPUs",
            )
        rewriter.trace(eqn, resolved(eqn, stable=stable, group=group))

    return rewritten(closed, Anywhere(lambda eqn: eqn.primitive in PRIMITIVES), resolve)
