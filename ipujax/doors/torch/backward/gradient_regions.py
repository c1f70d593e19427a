"""Folds each function with a user-written backward pass into one operator."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import Any

from ipujax.doors.graphs import Graph, Node, Ref, names_of_refs
from ipujax.ground import FrontendError, InternalError

_ENTER, _GRADIENTS, _LEAVE = (
    f"ipujax_backward.{name}.default" for name in ("enter", "gradients", "leave")
)

WITH_BACKWARD = "higher_order.with_backward"
"""The operator whose forward and backward passes are inner graphs."""


@dc.dataclass(eq=False)
class _Region:
    """A function whose nodes are being collected, or the graph around all functions.

    Attributes:
      begin: the `enter` node; None for the graph itself.
      graphs: the inner graphs of the functions in it that have ended.
      forward: the nodes of its forward pass; for the graph itself, all nodes.
      gradients: the node where the backward pass begins; None before that.
      backward: the nodes of its backward pass.
    """

    begin: Node | None
    graphs: dict[str, Graph]
    forward: list[Node] = dc.field(default_factory=list[Node])
    gradients: Node | None = None
    backward: list[Node] = dc.field(default_factory=list[Node])

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the pass that is being collected."""
        return self.forward if self.gradients is None else self.backward


def fold_user_backward(graph: Graph) -> Graph:
    """Folds functions into operators that have a forward and a backward graph.

    Raises:
      FrontendError: (a `ValueError`) other nodes read a value that a backward pass computes.
    """
    graphs = {name: fold_user_backward(inner_graph) for name, inner_graph in graph.graphs.items()}
    ended_numbers = {node.args[-1] for node in graph.nodes if node.operator == _LEAVE}
    regions = [_Region(None, graphs)]
    reads = _names_read_later(graph)
    for position, node in enumerate(graph.nodes):
        innermost = regions[-1]
        if node.operator == _ENTER and node.args[-1] in ended_numbers:
            regions.append(_Region(node, dict(graphs)))
        elif node.operator == _GRADIENTS and _number_of_region(innermost) == node.args[-1]:
            innermost.gradients = node
        elif node.operator == _LEAVE:
            if _number_of_region(innermost) != node.args[-1]:
                raise InternalError(f"backward pass {node.args[-1]} ends inside another")
            region = regions.pop()
            function_node, detach_nodes = _fold_region(region, node, reads[position], regions[-1])
            regions[-1].nodes.extend((*detach_nodes, function_node))
        else:
            innermost.nodes.append(node)
    (outermost,) = regions
    return dc.replace(graph, nodes=tuple(outermost.forward), graphs=outermost.graphs)


def _number_of_region(region: _Region) -> object:
    return None if region.begin is None else region.begin.args[-1]


def _names_read_later(graph: Graph) -> list[set[str]]:
    """Returns for each node the names read after it, inputs included: their last values count."""
    later_names = names_of_refs(graph.outputs) | set(graph.inputs)
    later_names_of_node: list[set[str]] = []
    for node in reversed(graph.nodes):
        later_names_of_node.append(set(later_names))
        later_names |= node.reads
    return later_names_of_node[::-1]


def _fold_region(
    region: _Region, leave: Node, later_names: set[str], outer_region: _Region
) -> tuple[Node, list[Node]]:
    """Returns a function as one operator, and operators that detach non-differentiable inputs."""
    begin, gradients = region.begin, region.gradients
    if begin is None or gradients is None:
        raise InternalError("a function of the user's has no backward pass")
    outputs, _, input_gradients, positions, is_once, number = leave.args
    (input_list,), (gradient_list,) = begin.results, gradients.results
    inputs = tuple(begin.args[0])
    slope_names = tuple(f"{gradient_list}.{i}" for i in range(len(outputs)))
    backward = (_list_node(slope_names, gradient_list), *region.backward)
    saved_names = _names_from_outside(backward, tuple(input_gradients), slope_names)
    backward_names = {name for node in backward for name in node.results}
    if leaked_names := sorted(backward_names & later_names):
        raise _backward_leak_error(region, leaked_names[0])
    input_names = tuple(f"{input_list}.{i}" for i in range(len(inputs)))
    forward = (_list_node(input_names, input_list), *region.forward)
    forward_names = dict.fromkeys(name for node in forward for name in node.results)
    escaped_names = tuple(name for name in forward_names if name in later_names)
    results = (*outputs, *map(Ref, escaped_names), *map(Ref, saved_names))
    outer_names = _names_from_outside(forward, results, input_names)
    names = f"{input_list}.forward", f"{input_list}.backward"
    outer_region.graphs[names[0]] = Graph(
        (*input_names, *outer_names), forward, results, region.graphs
    )
    outer_region.graphs[names[1]] = Graph(
        (*slope_names, *saved_names), backward, tuple(input_gradients), region.graphs
    )
    refs, detach_nodes = _detach_inputs(inputs, positions, outer_names, number, leave)
    args = (*names, len(outputs), tuple(positions), is_once, *refs)
    avals = (*leave.avals, *(None for _ in escaped_names))
    node = dc.replace(
        leave,
        operator=WITH_BACKWARD,
        args=args,
        results=(*leave.results, *escaped_names),
        avals=avals,
    )
    return node, detach_nodes


def differentiable_inputs(node: Node) -> tuple[Any, ...]:
    """Returns the differentiable inputs of a user-written function; () for other operators."""
    if node.operator != WITH_BACKWARD:
        return ()
    *_, inputs, _ = node.args
    return tuple(inputs)


def _list_node(names: Sequence[str], result: str) -> Node:
    return Node("listed", (tuple(map(Ref, names)),), results=(result,), avals=(None,))


def _detach_inputs(
    inputs: Sequence[Any],
    positions: Sequence[int],
    outer_names: Sequence[str],
    number: object,
    leave: Node,
) -> tuple[tuple[tuple[object, ...], tuple[object, ...]], list[Node]]:
    """Returns the arguments, and the operators that detach those without gradients."""
    nodes: list[Node] = []

    def detach_by_name(name: str) -> Ref:
        new = f"{name}.detached_{number}"
        node = Node(
            "aten.detach.default", (Ref(name),), results=(new,), avals=(None,),
            scope=leave.scope, where=leave.where, marks=leave.marks,
        )  # fmt: skip
        nodes.append(node)
        return Ref(new)

    function_inputs = tuple(
        x if i in positions else detach_by_name(x.name) for i, x in enumerate(inputs)
    )
    return (function_inputs, tuple(map(detach_by_name, outer_names))), nodes


def _names_from_outside(
    nodes: Sequence[Node], outputs: Iterable[object], inputs: Sequence[str]
) -> list[str]:
    """Returns the names that a pass reads and does not compute."""
    known_names, outer_names = set(inputs), dict[str, None]()
    for reads, results in (
        *((n.reads, n.results) for n in nodes),
        (names_of_refs(tuple(outputs)), ()),
    ):
        outer_names.update(dict.fromkeys(sorted(name for name in reads if name not in known_names)))
        known_names.update(results)
    return list(outer_names)


def _backward_leak_error(region: _Region, name: str) -> FrontendError:
    node = next((n for n in region.backward if name in n.results), None)
    location = None if node is None else node.where
    return FrontendError(
        "a backward pass changes or stores a tensor that other parts of the model read",
        where=location,
        fix="return the value as a gradient, or compute it in the forward pass",
    )
