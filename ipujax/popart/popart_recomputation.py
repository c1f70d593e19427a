"""The choice of node results that are recomputed in the backward pass instead of kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from ipujax.doors.graphs import Call, Node, Operand, Operators
from ipujax.popart.options import RecomputationType, RecomputeType
from ipujax.popart.popart_checks import check

RECOMPUTE = "__recompute_output_in_backward_pass"
_NORMS = frozenset({
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "ai.graphcore.BatchNormalization", "ai.graphcore.GroupNormalization",
})  # fmt: skip
_NONLINEARITIES = frozenset({
    "Celu", "Elu", "HardSigmoid", "LeakyRelu", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu", "ai.graphcore.Gelu", "ai.graphcore.Swish",
})  # fmt: skip


def choose_recomputed_results(
    nodes: Sequence[Node],
    loss: str,
    kind: RecomputationType,
    avals: Mapping[str, jax.ShapeDtypeStruct],
    stage_of: Callable[[Node], int | None],
) -> frozenset[str]:
    """Chooses the node results that the backward pass recomputes.

    Without a kind these are the results that `Builder.recomputeOutput` marked. NormOnly recomputes
    the results of normalizations, and of nonlinearities that follow them. The other kinds keep
    checkpoints, and recompute all results but these and those between the last checkpoint and the
    loss (in a pipeline within its last stage), whose gradients are computed first. Results marked
    as checkpoints are always kept; Standard adds the results that are alive at the points of least
    live memory, one in each of about sqrt(n) runs of nodes.

    Args:
      nodes: the nodes that the loss depends on, in order.
      loss: the name of the loss.
      kind: the kind that the session's options ask for.
      avals: the shapes and dtypes of the results.
      stage_of: a function that returns the stage of a node; None without a pipeline.

    Raises:
      PopARTError: (a `ValueError`) there are both a kind and nodes that are marked one by one.
    """
    marked = _select_marked_results(nodes, RecomputeType.Recompute)
    if kind is RecomputationType.NoRecompute:
        return marked
    if marked:
        raise check.value_error(
            "A mixture of auto and manual recomputation is not supported",
            "leave out SessionOptions.autoRecomputation, or builder.recomputeOutput",
        )
    checkpoints = _select_marked_results(nodes, RecomputeType.Checkpoint)
    if kind is RecomputationType.NormOnly:
        return frozenset(_find_norm_results(nodes)) - checkpoints
    if kind is RecomputationType.Standard:
        checkpoints |= _find_least_alive(nodes, avals)
    return (
        _result_names(nodes)
        - checkpoints
        - _find_results_before_loss(nodes, loss, checkpoints, stage_of)
    )


class NamingOperators(Operators):
    """A table of operators whose results keep their names in a jaxpr.

    A policy of `jax.checkpoint` can then tell results apart.
    """

    def __init__(self, operators: Operators) -> None:
        super().__init__(operators)
        self._operators = operators

    def apply(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Operand:
        """Applies an operator of the other table, and names its results."""
        value = self._operators.apply(call, args, kwargs)
        names = call.node.results
        return (
            _name_result(value, names[0])
            if len(names) == 1
            else tuple(map(_name_result, value, names))
        )


def _name_result(value: object, name: str) -> Operand:
    # Constants stay constants.
    return checkpoint_name(value, name) if isinstance(value, jax.Array) else value


def _result_names(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(name for node in nodes for name in node.results if name)


def _select_marked_results(nodes: Iterable[Node], kind: RecomputeType) -> frozenset[str]:
    return _result_names(node for node in nodes if node.marks.get(RECOMPUTE) == kind.value)


def _find_norm_results(nodes: Iterable[Node]) -> Iterator[str]:
    normal: set[str] = set()
    for node in nodes:
        operator = node.operator.rsplit("-", 1)[0]
        if operator in _NORMS or (operator in _NONLINEARITIES and node.reads & normal):
            normal |= {*node.results} if operator in _NORMS else set()
            yield from node.results


def _find_least_alive(
    nodes: Sequence[Node], avals: Mapping[str, jax.ShapeDtypeStruct]
) -> frozenset[str]:
    """Returns the results alive where memory is least, in each of about sqrt(n) runs of nodes."""
    alive: list[frozenset[str]] = []
    read: frozenset[str] = frozenset()
    for number in reversed(range(len(nodes))):
        node_results = _result_names(nodes[number : number + 1])
        alive.append(node_results | (read & _result_names(nodes[:number])))
        read |= nodes[number].reads
    alive.reverse()
    size = max(1, math.isqrt(len(nodes)))
    runs = [alive[i : i + size] for i in range(0, len(alive), size)]
    return frozenset[str]().union(
        *(min(run, key=lambda n: _bytes_of_names(n, avals)) for run in runs)
    )


def _bytes_of_names(names: Collection[str], avals: Mapping[str, jax.ShapeDtypeStruct]) -> int:
    return sum(avals[name].size * avals[name].dtype.itemsize for name in names if name in avals)


def _find_results_before_loss(
    nodes: Sequence[Node],
    loss: str,
    checkpoints: Collection[str],
    stage_of: Callable[[Node], int | None],
) -> frozenset[str]:
    """Returns the results after the last checkpoint before the loss, within the last stage."""
    stages = [stage_of(node) for node in nodes]
    last = max((stage for stage in stages if stage is not None), default=None)
    reaching = {loss}
    results_before_loss: set[str] = set()
    for node, stage in zip(reversed(nodes), reversed(stages), strict=True):
        results = reaching.intersection(node.results)
        if not results or not results.isdisjoint(checkpoints) or stage not in (None, last):
            continue
        results_before_loss |= {*node.results}
        reaching |= node.reads
    return frozenset(results_before_loss)
