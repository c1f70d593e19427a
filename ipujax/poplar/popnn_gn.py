"""popnn.gn: norms of groups of channels of each image; channel c is in group c % groups."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.popnn_norms import (
    Norm,
    add_gradients,
    add_normalise,
    add_parameter_gradients,
    add_statistics,
    add_whiten,
    count_groups,
    group_norm,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor


def _norm(groups: int, rest: Any) -> Norm:
    """Returns the norm; the option `groupNormStridedChannelGrouping` is PopLibs'."""
    options = next((each for each in rest if isinstance(each, dict)), {})
    is_strided = str(options.get("groupNormStridedChannelGrouping", True)).lower() == "true"
    return group_norm("groupNorm", groups, is_strided=is_strided)


@check.guard
def groupNormStatistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    numGroups: int,
    unbiasedVarEstimate: bool,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    """Adds the mean and the inverse standard deviation of each group of each image; both 1-d.

    Args:
      graph: the graph.
      acts: [batch, channels, *field].
      eps: added to the variance.
      prog: the sequence.
      numGroups: the groups of channels.
      unbiasedVarEstimate: whether the variance is divided by one less than the count.
      *rest: `stableAlgo` and the type of partial sums, which change nothing: sums are stable and in
        float; a name and options.
    """
    return add_statistics(
        graph,
        _norm(check.require_integer(numGroups, "numGroups", at_least=1), rest),
        acts,
        eps,
        prog,
        unbiasedVarEstimate,
        rest,
    )


@check.guard
def groupNormWhiten(
    graph: Graph, acts: Tensor, mean: Tensor, iStdDev: Tensor, prog: Sequence, *rest: Any
) -> Tensor:
    """Adds the activations less their mean, times the inverse standard deviation."""
    return add_whiten(
        graph, _norm(count_groups(acts, iStdDev), rest), acts, mean, iStdDev, prog, rest
    )


@check.guard
def groupNormalise(
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
    return add_normalise(
        graph,
        _norm(count_groups(acts, iStdDev), rest),
        acts,
        gamma,
        beta,
        mean,
        iStdDev,
        prog,
        rest,
    )


@check.guard
def groupNormGradients(
    graph: Graph,
    actsWhitened: Tensor,
    gradsIn: Tensor,
    iStdDev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    *rest: Any,
) -> Tensor:
    """Adds the gradient of the activations, through their statistics; returns its tensor."""
    return add_gradients(
        graph,
        _norm(count_groups(actsWhitened, iStdDev), rest),
        actsWhitened,
        gradsIn,
        iStdDev,
        gamma,
        prog,
        rest,
    )


@check.guard
def groupNormParamGradients(
    graph: Graph, actsWhitened: Tensor, gradsIn: Tensor, prog: Sequence, *rest: Any
) -> tuple[Tensor, Tensor]:
    """Adds the gradients of gamma and beta, and returns both."""
    return add_parameter_gradients(graph, _norm(1, rest), actsWhitened, gradsIn, prog, rest)
