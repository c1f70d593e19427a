"""From blocks to stages: where the operators of a traced module run."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from ipujax.doors import graphs
from ipujax.doors.graphs import Graph, Node, Placement, Ref, module_scope
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.trace import BLOCK
from ipujax.pipelining_ops import recomputation_checkpoint
from ipujax.poptorch import multi_conv, name_scope
from ipujax.poptorch.checks import check
from ipujax.poptorch.log import logger
from ipujax.poptorch.operators import operator, operator_name
from ipujax.poptorch.strategies import AutoStage, PipelinedExecution, Place, ShardedExecution

# What gives a value another name, so that it is wherever its operand is.
_NAMES_ONLY = frozenset({"assign", "constant", "getitem"})

_HANDED_ON = operator_name("handed_on")


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Staged(Placement):
    """A graph whose operators have places.

    Attributes:
      graph: it; those of its operators that have a place have the mark `place`, a `Place`.
    """

    graph: Graph

    def place_of(self, node: Node) -> graphs.Place:
        """As `Placement.place_of`."""
        place = node.marks.get("place")
        return super().place_of(node) if place is None else graphs.Place(place.stage, place.ipu)

    def names_of(self, node: Node) -> Iterable[str]:
        """The names of a node's modules, blocks and convolutions that run together."""
        names = [*module_scope(node), *node.marks.get(name_scope.MARK, ())]
        scope = node.marks.get(multi_conv.MARK)
        return names if scope is None else [*multi_conv.attributes(scope), *names]


def check_depth(placement: Placement, accumulation: int) -> None:
    """Refuses a pipeline with fewer micro-batches in a weight update than passes.

    Raises:
      PopTorchError: (a `ValueError`) there are fewer.
    """
    stages = len(placement.ipus)
    passes = 2 * stages - 1
    if accumulation < passes:
        raise check.refuse(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to "
            f"the number of pipeline stages ({passes}) when using "
            f"poptorch.PipelinedExecution. Please note that a model with {stages} pipeline "
            f"stages in PopTorch will have an additional {stages - 1} stages when training. "
            f"It is {accumulation}",
            f"options.Training.gradientAccumulation({passes}), or more; or fewer stages; or "
            "poptorch.ShardedExecution, where stages run one after the other",
        )


def staged(
    graph: Graph, strategy: PipelinedExecution, variables: Mapping[str, tuple[str, ...]]
) -> Staged:
    """Gives the operators of a graph their places.

    What comes before the first block is in the first stage, if that is stage 0 or on IPU 0; else it
    is a stage of its own on IPU 0. Stages that follow one another on the same IPU are one. A
    variable that stages of several IPUs read lives on that of the first, which hands it on.

    Args:
      graph: whose operators have the marks of blocks.
      strategy: what gives blocks their stages.
      variables: names that each variable has in the graph.

    Raises:
      PopTorchError: (a `ValueError`) an operator comes after the end of a block and is in no other,
        a block that the strategy does not know, a stage on several IPUs, or one that needs what a
        later one makes.
    """
    places = _places(graph, strategy)
    if not places:
        return Staged(graph=graph, ipus=(0,))
    is_sharded = isinstance(strategy, ShardedExecution)
    ipus = _ipus(places.values(), is_sharded)
    numbers, merged = _merged(ipus)
    nodes = tuple(
        dc.replace(node, marks={**node.marks, "place": Place(numbers[place.stage], place.ipu)})
        if (place := places.get(id(node))) is not None
        else node
        for node in graph.nodes
    )
    graph = dc.replace(graph, nodes=nodes)
    count = max(merged) + 1 if len(merged) > 1 else 1
    found = Staged(graph=graph, ipus=merged, is_sharded=is_sharded, ipu_count=count)
    if found.is_pipelined:
        _check_order(graph)
        for names in variables.values():
            found = dc.replace(found, graph=_with_one_home(found.graph, frozenset(names)))
    return found


def _places(graph: Graph, strategy: PipelinedExecution) -> dict[int, Place]:
    """The places of nodes, by `id`; none if there are no blocks."""
    placing = strategy.placing()
    of_blocks: dict[Any, Place] = {}
    places: dict[int, Place] = {}
    for node in graph.nodes:
        block = node.marks.get(BLOCK)
        if block is not None:
            if block not in of_blocks:
                of_blocks[block] = placing.begin(*block)
            places[id(node)] = of_blocks[block]
    if not of_blocks:
        return {}
    before = _before_blocks(of_blocks.values(), strategy)
    for node in graph.nodes:
        if id(node) in places or node.operator in _NAMES_ONLY:
            continue
        if BLOCK in node.marks:
            raise PopTorchError(
                f"No active Block, all the ops must belong to a Block: {node.operator} comes after "
                "the end of one",
                where=node.where,
                fix="put it inside the `with poptorch.Block(...)`, or in one of its own",
            )
        if node.reads:  # what is made of nothing is made where it is needed
            places[id(node)] = before
    return places


def _before_blocks(of_blocks: Iterable[Place], strategy: PipelinedExecution) -> Place:
    """The place of what comes before all blocks."""
    first = min(of_blocks, key=lambda place: place.stage)
    is_numbered = strategy.stages() or strategy.auto_stage is AutoStage.SameAsIpu
    if first.ipu == 0 or (is_numbered and first.stage == 0):
        return first
    return Place(-1, 0)


def _ipus(places: Iterable[Place], is_sharded: bool) -> dict[int, int]:
    """The IPU of each stage, in their order."""
    ipus: dict[int, int] = {}
    for stage, ipu in sorted({(place.stage, place.ipu) for place in places}):
        if ipus.setdefault(stage, ipu) != ipu and not is_sharded:
            raise check.refuse(
                f"stage {stage} has blocks on IPU {ipus[stage]} and on IPU {ipu}: a stage of a "
                "pipeline runs on one",
                "give its blocks the same ipu_id, or say poptorch.Stage(...).ipu(number)",
            )
    return ipus


def _merged(ipus: Mapping[int, int]) -> tuple[dict[int, int], tuple[int, ...]]:
    """New numbers of stages, from 0, with one for neighbours on an IPU; and their IPUs."""
    numbers: dict[int, int] = {}
    merged: list[int] = []
    for stage, ipu in ipus.items():
        if not merged or merged[-1] != ipu:
            merged.append(ipu)
        numbers[stage] = len(merged) - 1
    return numbers, tuple(merged)


def _check_order(graph: Graph) -> None:
    """Refuses a stage that needs what a later one makes."""
    latest: dict[str, Node] = {}  # of each value, the operator because of which it is in its stage
    for node in graph.nodes:
        needed = [latest[name] for name in node.reads if name in latest]
        last = max(needed, key=_stage, default=None)
        if "place" not in node.marks:
            if last is not None:
                latest.update(dict.fromkeys(node.results, last))
            continue
        latest.update(dict.fromkeys(node.results, node))
        if last is not None and _stage(last) > _stage(node):
            raise PopTorchError(
                f"the stages are not in order: {_described(node)} is in stage {_stage(node)}, and "
                f"needs what {_described(last)} computes in stage {_stage(last)}",
                where=node.where,
                fix="list the stages in the order in which the model computes them, or give the "
                "block that comes later a later stage",
            )


def _stage(node: Node) -> int:
    return node.marks["place"].stage


def _described(node: Node) -> str:
    block = node.marks.get(BLOCK)
    parts = [
        f"block {block.user_id!r}" if block else "what comes before all blocks",
        f"({node.operator} in {node.scope})" if node.scope else f"({node.operator})",
    ]
    return " ".join(parts)


def _with_one_home(graph: Graph, names: frozenset[str]) -> Graph:
    """The graph, in which only stages on the first reader's IPU read a variable themselves."""
    if any(names.intersection(node.results) for node in graph.nodes):
        return graph  # a stage changes it, and those after that see what it has made
    readers = {id(n): n for n in graph.nodes if names.intersection(n.reads) and "place" in n.marks}
    if len({node.marks["place"].ipu for node in readers.values()}) < 2:
        return graph
    home = min((node.marks["place"] for node in readers.values()), key=lambda place: place.stage)
    given = {name: f"{name}.handed_on" for name in names if name in graph.inputs}
    made = [
        Node(_HANDED_ON, (Ref(name),), {}, (new,), (None,), marks={"place": home})
        for name, new in given.items()
    ]
    nodes = (
        _renamed(node, given)
        if id(node) in readers and node.marks["place"].ipu != home.ipu
        else node
        for node in graph.nodes
    )
    return dc.replace(graph, nodes=(*made, *nodes))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """A node that reads values by other names."""

    def new(tree: Any) -> Any:
        if isinstance(tree, Ref):
            return Ref(names.get(tree.name, tree.name))
        return type(tree)([new(item) for item in tree]) if isinstance(tree, list | tuple) else tree

    kwargs = {name: new(value) for name, value in node.kwargs.items()}
    return dc.replace(node, args=new(node.args), kwargs=kwargs)


@operator(_HANDED_ON)
def handed_on(variable: jax.Array) -> jax.Array:
    """A variable as a value, which its stage makes and others are given."""
    return recomputation_checkpoint(variable)


def log_places(found: Staged) -> None:
    """Logs where each operator runs, for debugging, as the original did."""
    logger.debug("enablePipelining set to value %d", found.is_pipelined)
    mode = "Sharded" if found.is_sharded else "Pipelined"
    seen: dict[str, int] = {}
    for node in found.graph.nodes:
        if node.operator in _NAMES_ONLY:
            continue
        kind = node.operator.split(".")[1].capitalize()
        name = "/".join([*node.scope.split("."), kind] if node.scope else [kind])
        number = seen[name] = seen.get(name, -1) + 1
        place = node.marks.get("place", Place(0, found.ipus[0]))
        suffix = f"/{number}" if number else ""
        logger.debug(
            "Lowered %s:0%s , mode(%s), ipu(%d), stage(%d)",
            name, suffix, mode, place.ipu, place.stage,
        )  # fmt: skip
