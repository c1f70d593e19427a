"""popnn.bn: norms over a batch, of each channel."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.popnn_norms import BATCH_NORM, add_statistics, define_functions
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

batchNormWhiten, batchNormalise, batchNormGradients, batchNormParamGradients = define_functions(
    "batch", lambda *_: BATCH_NORM
)


@check.guard
def batchNormStatistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    unbiasedVarEstimate: bool,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """Adds the mean and the inverse standard deviation of each channel; returns both, 1-d.

    Args:
      graph: the graph.
      acts: [batch, channels, *field].
      eps: added to the variance.
      prog: the sequence.
      unbiasedVarEstimate: whether the variance is divided by one less than the count.
      *rest: `stableAlgo` and the type of partial sums, which change nothing: sums are stable and in
        float; a name and options.
    """
    return add_statistics(graph, BATCH_NORM, acts, eps, prog, unbiasedVarEstimate, rest)
