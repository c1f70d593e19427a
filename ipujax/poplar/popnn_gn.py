"""popnn.gn: norms of groups of channels of each image; channel c is in group c % groups."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.popnn_norms import (
    Norm,
    add_statistics,
    count_groups,
    define_functions,
    group_norm,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor

_STRIDED = "groupNormStridedChannelGrouping"


def _make_norm(groups: int, trailing_arguments: Any) -> Norm:
    """Returns a group norm; PopLibs' option says whether neighbouring channels are in one group."""
    options = next((argument for argument in trailing_arguments if isinstance(argument, dict)), {})
    is_strided = str(options.get(_STRIDED, True)).lower() == "true"
    return group_norm("groupNorm", groups, is_strided=is_strided)


def _norm_of_call(acts: Tensor, deviation: Tensor | None, trailing_arguments: Any) -> Norm:
    """Returns the norm whose groups the statistics count.

    Without statistics it has one group, as gradients of parameters do not depend on the groups.
    """
    return _make_norm(1 if deviation is None else count_groups(acts, deviation), trailing_arguments)


groupNormWhiten, groupNormalise, groupNormGradients, groupNormParamGradients = define_functions(
    "group", _norm_of_call
)


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
    norm = _make_norm(check.require_integer(numGroups, "numGroups", at_least=1), rest)
    return add_statistics(graph, norm, acts, eps, prog, unbiasedVarEstimate, rest)
