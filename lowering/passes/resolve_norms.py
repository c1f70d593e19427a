"""The replacement of normalisation statistics by the form that options ask for."""

from __future__ import annotations

from lowering.ground import CollectiveError
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    rewrite_equations,
    user_line,
)
from lowering.ops import NORM_PRIMITIVES, resolve_norm_primitive, square_p


def resolve_norms(closed: ClosedJaxpr, *, stable: bool, group: int, replicas: int) -> ClosedJaxpr:
    """Replaces the primitives of `lowering.ops.norm_primitives`, at any depth.

    Before: any jaxpr.
    After:  variances are computed in the form asked for; the statistics of batch normalisations
            that are shared by more than one replica have `cross_replica_sum`s.
    Raises: CollectiveError if `group`, the number of those replicas, does not divide `replicas`.
    """

    def replace_norm_primitive(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        if eqn.primitive is not square_p and replicas % group:
            raise CollectiveError(
                "norms.experimental.distributed_batch_norm_replica_group_size is "
                f"{group}, which must evenly divide the number of replicas, {replicas}",
                where=user_line(eqn),
                fix=f"set it to a divisor of {replicas}, or give the device another number of IPUs",
            )
        rewriter.replace_by_function(eqn, resolve_norm_primitive(eqn, stable=stable, group=group))

    return rewrite_equations(
        closed, EquationFinder(lambda eqn: eqn.primitive in NORM_PRIMITIVES), replace_norm_primitive
    )
