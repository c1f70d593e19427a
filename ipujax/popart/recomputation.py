"""Which results of a model's nodes are computed again for the backward pass, not kept for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from ipujax.doors.graphs import Call, Node, Operators
from ipujax.popart.checks import check
from ipujax.popart.options import RecomputationType, RecomputeType

RECOMPUTE = "__recompute_output_in_backward_pass"
_NORMS = frozenset({
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "ai.graphcore.BatchNormalization", "ai.graphcore.GroupNormalization",
})  # fmt: skip
_NONLINEARITIES = frozenset({
    "Celu", "Elu", "HardSigmoid", "LeakyRelu", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu", "ai.graphcore.Gelu", "ai.graphcore.Swish",
})  # fmt: skip


def recomputed(
    nodes: Sequence[Node],
    loss: str,
    kind: RecomputationType,
    avals: Mapping[str, jax.ShapeDtypeStruct],
    stage_of: Callable[[Node], int | None],
) -> frozenset[str]:
    """The results that are computed again.

    Without `kind` these are what `Builder.recomputeOutput` has marked so. NormOnly: the results of
    normalizations, and of nonlinearities that follow them. The others have checkpoints, and compute
    again all but these and what reaches the loss without one in between, in a pipeline within its
    last stage: its gradients are the first, and nothing is gained if it is computed twice. The
    checkpoints are what is marked so, which is kept in any case; those of Standard are also what is
    alive at some points, one in each of about sqrt(n) runs of nodes, where the least is.

    Args:
      nodes: those that the loss needs, in order.
      loss: its name.
      kind: what the session's options ask for.
      avals: of the results.
      stage_of: gives the stage of a node; None where that does not count.

    Raises:
      PopARTError: (a `ValueError`) both a kind and nodes that are marked one by one.
    """
    marked = _marked(nodes, RecomputeType.Recompute)
    if kind is RecomputationType.NoRecompute:
        return marked
    if marked:
        raise check.refuse(
            "A mixture of auto and manual recomputation is not supported",
            "leave out SessionOptions.autoRecomputation, or builder.recomputeOutput",
        )
    checkpoints = _marked(nodes, RecomputeType.Checkpoint)
    if kind is RecomputationType.NormOnly:
        return frozenset(_of_norms(nodes)) - checkpoints
    if kind is RecomputationType.Standard:
        checkpoints |= _least_alive(nodes, avals)
    return _names(nodes) - checkpoints - _last(nodes, loss, checkpoints, stage_of)


class NamingOperators(Operators):
    """Another table of operators, whose results have their names in a jaxpr, too.

    A policy of `jax.checkpoint` can tell them from one another then.
    """

    def __init__(self, operators: Operators) -> None:
        super().__init__(operators)
        self._operators = operators

    def apply(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As that of the other table."""
        value = self._operators.apply(call, args, kwargs)
        names = call.node.results
        return _named(value, names[0]) if len(names) == 1 else tuple(map(_named, value, names))


def _named(value: Any, name: str) -> Any:
    # What is known stays so.
    return checkpoint_name(value, name) if isinstance(value, jax.Array) else value


def _names(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(name for node in nodes for name in node.results if name)


def _marked(nodes: Iterable[Node], kind: RecomputeType) -> frozenset[str]:
    return _names(node for node in nodes if node.marks.get(RECOMPUTE) == kind.value)


def _of_norms(nodes: Iterable[Node]) -> Iterator[str]:
    normal: set[str] = set()
    for node in nodes:
        operator = node.operator.rsplit("-", 1)[0]
        if operator in _NORMS or (operator in _NONLINEARITIES and node.reads & normal):
            normal |= {*node.results} if operator in _NORMS else set()
            yield from node.results


def _least_alive(
    nodes: Sequence[Node], avals: Mapping[str, jax.ShapeDtypeStruct]
) -> frozenset[str]:
    """What is alive where the least is, in each of about sqrt(n) runs of nodes."""
    alive: list[frozenset[str]] = []
    read: frozenset[str] = frozenset()
    for number in reversed(range(len(nodes))):
        own = _names(nodes[number : number + 1])
        alive.append(own | (read & _names(nodes[:number])))
        read |= nodes[number].reads
    alive.reverse()
    size = max(1, math.isqrt(len(nodes)))
    runs = [alive[i : i + size] for i in range(0, len(alive), size)]
    return frozenset[str]().union(*(min(run, key=lambda n: _bytes(n, avals)) for run in runs))


def _bytes(names: Collection[str], avals: Mapping[str, jax.ShapeDtypeStruct]) -> int:
    return sum(avals[name].size * avals[name].dtype.itemsize for name in names if name in avals)


def _last(
    nodes: Sequence[Node],
    loss: str,
    checkpoints: Collection[str],
    stage_of: Callable[[Node], int | None],
) -> frozenset[str]:
    """What reaches the loss without a checkpoint in between, and within the last stage."""
    stages = [stage_of(node) for node in nodes]
    last = max((stage for stage in stages if stage is not None), default=None)
    reaching = {loss}
    found: set[str] = set()
    for node, stage in zip(reversed(nodes), reversed(stages), strict=True):
        results = reaching.intersection(node.results)
        if not results or not results.isdisjoint(checkpoints) or stage not in (None, last):
            continue
        found |= {*node.results}
        reaching |= node.reads
    return frozenset(found)
