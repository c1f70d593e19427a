"""popnn.bn: norms over a batch, of each channel."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import require_program_at
from ipujax.poplar.popnn_norms import (
    BATCH_NORM,
    add_affine,
    add_statistics,
    define_functions,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

batchNormWhiten, _normalise, batchNormGradients, batchNormParamGradients = define_functions(
    "batch", lambda *_: BATCH_NORM
)


@check.guard
def batchNormalise(graph: Graph, acts: Tensor, *arguments: Any) -> Any:
    """Adds the norm of activations to a program.

    Args:
      graph: the graph.
      acts: [batch, channels, *field].
      *arguments: `gamma, beta, mean, iStdDev, prog`; or, with what these come to for each channel,
        `combinedMultiplicand, addend, prog`; and a name and options.

    Returns:
      The norm and the whitened activations, which gradients need; of the second form the norm.
    """
    place = require_program_at("batchNormalise", arguments, (2, 4))
    if place > 2:
        return _normalise(graph, acts, *arguments)
    factors, addend, prog, *rest = arguments
    return add_affine(graph, BATCH_NORM, acts, factors, addend, prog, rest)


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
