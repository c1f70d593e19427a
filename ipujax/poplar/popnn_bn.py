"""popnn.bn: norms over a batch, of each channel."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.popnn_norms import (
    BATCH_NORM,
    add_gradients,
    add_normalise,
    add_parameter_gradients,
    add_statistics,
    add_whiten,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor


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


@check.guard
def batchNormWhiten(
    graph: Graph, acts: Tensor, mean: Tensor, iStdDev: Tensor, prog: Sequence, *rest: Any
) -> Tensor:
    """Adds the activations less their mean, times the inverse standard deviation."""
    return add_whiten(graph, BATCH_NORM, acts, mean, iStdDev, prog, rest)


@check.guard
def batchNormalise(
    graph: Graph,
    acts: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    iStdDev: Tensor,
    prog: Sequence,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """Adds the norm of activations; returns it, and the whitened activations for the gradients."""
    return add_normalise(graph, BATCH_NORM, acts, gamma, beta, mean, iStdDev, prog, rest)


@check.guard
def batchNormGradients(
    graph: Graph,
    actsWhitened: Tensor,
    gradsIn: Tensor,
    iStdDev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds the gradient of the activations, through their statistics; returns its tensor."""
    return add_gradients(graph, BATCH_NORM, actsWhitened, gradsIn, iStdDev, gamma, prog, rest)


@check.guard
def batchNormParamGradients(
    graph: Graph, actsWhitened: Tensor, gradsIn: Tensor, prog: Sequence, *rest: Any
) -> tuple[Tensor, Tensor]:
    """Adds the gradients of gamma and beta, and returns both."""
    return add_parameter_gradients(graph, BATCH_NORM, actsWhitened, gradsIn, prog, rest)
