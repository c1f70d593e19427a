"""Makes one operator of each function that has a backward pass of its own."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import Any

from ipujax.doors.graphs import Graph, Node, Ref, names_in
from ipujax.errors import FrontendError, InternalError

_ENTER, _GRADIENTS, _LEAVE = (
    f"ipujax_backward.{name}.default" for name in ("enter", "gradients", "leave")
)

WITH_BACKWARD = "higher_order.with_backward"
"""The operator: its forward and its backward pass are graphs inside the graph."""


@dc.dataclass(eq=False)
class _Region:
    """A function that is being read, or what is around all of them.

    Attributes:
      begin: `enter`; None for the graph itself.
      graphs: of the functions in it that have ended.
      forward: the nodes of its forward pass; of the graph itself all nodes.
      gradients: where the backward pass begins; None before that.
      backward: the nodes of its backward pass.
    """

    begin: Node | None
    graphs: dict[str, Graph]
    forward: list[Node] = dc.field(default_factory=list[Node])
    gradients: Node | None = None
    backward: list[Node] = dc.field(default_factory=list[Node])

    @property
    def nodes(self) -> list[Node]:
        """Those of the pass that is being read."""
        return self.forward if self.gradients is None else self.backward


def fold_backward(graph: Graph) -> Graph:
    """The graph with functions as operators that have a forward and a backward graph of their own.

    Raises:
      FrontendError: (a `ValueError`) something else needs what a backward pass computes.
    """
    graphs = {name: fold_backward(inner) for name, inner in graph.graphs.items()}
    ended = {node.args[-1] for node in graph.nodes if node.operator == _LEAVE}
    regions = [_Region(None, graphs)]
    reads = _later_reads(graph)
    for position, node in enumerate(graph.nodes):
        innermost = regions[-1]
        if node.operator == _ENTER and node.args[-1] in ended:
            regions.append(_Region(node, dict(graphs)))
        elif node.operator == _GRADIENTS and _number_of(innermost) == node.args[-1]:
            innermost.gradients = node
        elif node.operator == _LEAVE:
            if _number_of(innermost) != node.args[-1]:
                raise InternalError(f"backward pass {node.args[-1]} ends inside another")
            region = regions.pop()
            folded, detached = _fold(region, node, reads[position], regions[-1])
            regions[-1].nodes.extend((*detached, folded))
        else:
            innermost.nodes.append(node)
    (whole,) = regions
    return dc.replace(graph, nodes=tuple(whole.forward), graphs=whole.graphs)


def _number_of(region: _Region) -> Any:
    return None if region.begin is None else region.begin.args[-1]


def _later_reads(graph: Graph) -> list[set[str]]:
    """Of each node, the names that are read after it, or are inputs, whose last values count."""
    after = names_in(graph.outputs) | set(graph.inputs)
    reads: list[set[str]] = []
    for node in reversed(graph.nodes):
        reads.append(set(after))
        after |= node.reads
    return reads[::-1]


def _fold(
    region: _Region, leave: Node, later: set[str], around: _Region
) -> tuple[Node, list[Node]]:
    """A function as one operator, and the operators that detach what it has no gradients for."""
    begin, gradients = region.begin, region.gradients
    if begin is None or gradients is None:
        raise InternalError("a function of the user's has no backward pass")
    outputs, _, slopes, positions, is_once, number = leave.args
    (entered,), (given,) = begin.results, gradients.results
    inputs = tuple(begin.args[0])
    slope_names = tuple(f"{given}.{i}" for i in range(len(outputs)))
    backward = (_listed(slope_names, given), *region.backward)
    kept = _read_from_outside(backward, tuple(slopes), slope_names)
    made_backward = {name for node in backward for name in node.results}
    if lost := sorted(made_backward & later):
        raise _leaked(region, lost[0])
    input_names = tuple(f"{entered}.{i}" for i in range(len(inputs)))
    forward = (_listed(input_names, entered), *region.forward)
    made = dict.fromkeys(name for node in forward for name in node.results)
    escaped = tuple(name for name in made if name in later)
    results = (*outputs, *map(Ref, escaped), *map(Ref, kept))
    others = _read_from_outside(forward, results, input_names)
    names = f"{entered}.forward", f"{entered}.backward"
    around.graphs[names[0]] = Graph((*input_names, *others), forward, results, region.graphs)
    around.graphs[names[1]] = Graph((*slope_names, *kept), backward, tuple(slopes), region.graphs)
    refs, detached = _detached(inputs, positions, others, number, leave)
    args = (*names, len(outputs), tuple(positions), is_once, *refs)
    avals = (*leave.avals, *(None for _ in escaped))
    node = dc.replace(
        leave, operator=WITH_BACKWARD, args=args, results=(*leave.results, *escaped), avals=avals
    )
    return node, detached


def differentiable_inputs(node: Node) -> tuple[Any, ...]:
    """Returns the inputs with gradients of a function of the user's; () for any other operator."""
    if node.operator != WITH_BACKWARD:
        return ()
    *_, inputs, _ = node.args
    return tuple(inputs)


def _listed(names: Sequence[str], listed: str) -> Node:
    return Node("listed", (tuple(map(Ref, names)),), results=(listed,), avals=(None,))


def _detached(
    inputs: Sequence[Any], positions: Sequence[int], others: Sequence[str], number: Any, leave: Node
) -> tuple[tuple[tuple[Any, ...], tuple[Any, ...]], list[Node]]:
    """The arguments, and the operators that detach those that have no gradients."""
    nodes: list[Node] = []

    def detach(name: str) -> Ref:
        new = f"{name}.detached_{number}"
        made = Node(
            "aten.detach.default", (Ref(name),), results=(new,), avals=(None,),
            scope=leave.scope, where=leave.where, marks=leave.marks,
        )  # fmt: skip
        nodes.append(made)
        return Ref(new)

    own = tuple(x if i in positions else detach(x.name) for i, x in enumerate(inputs))
    return (own, tuple(map(detach, others))), nodes


def _read_from_outside(
    nodes: Sequence[Node], outputs: Iterable[Any], inputs: Sequence[str]
) -> list[str]:
    """The names that a pass reads and does not make."""
    known, others = set(inputs), dict[str, None]()
    for reads, makes in (*((n.reads, n.results) for n in nodes), (names_in(tuple(outputs)), ())):
        others.update(dict.fromkeys(sorted(name for name in reads if name not in known)))
        known.update(makes)
    return list(others)


def _leaked(region: _Region, name: str) -> FrontendError:
    node = next((n for n in region.backward if name in n.results), None)
    where = None if node is None else node.where
    return FrontendError(
        "a backward pass changes a tensor, or keeps one, that other parts of the model read",
        where=where,
        fix="return from it what others need as a gradient, or compute it in the forward pass",
    )
