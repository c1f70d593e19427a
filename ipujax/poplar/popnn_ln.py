"""popnn.ln: norms of each image."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.popnn_norms import add_statistics, define_functions, group_norm
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

LAYER_NORM = group_norm("layerNorm", 1)
layerNormWhiten, layerNormalise, layerNormGradients, layerNormParamGradients = define_functions(
    "layer", lambda *_: LAYER_NORM
)


@check.guard
def layerNormStatistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    unbiasedVarEstimate: bool,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """Adds the mean and the inverse standard deviation of each image; returns both, 1-d.

    Args:
      graph: the graph.
      acts: [batch, channels, *field].
      eps: added to the variance.
      prog: the sequence.
      unbiasedVarEstimate: whether the variance is divided by one less than the count.
      *rest: `stableAlgo` and the type of partial sums, which change nothing: sums are stable and in
        float; a name and options.
    """
    return add_statistics(graph, LAYER_NORM, acts, eps, prog, unbiasedVarEstimate, rest)
