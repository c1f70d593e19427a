"""The assignment of a traced module's operators to pipeline stages and IPUs, by their blocks."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping

import jax

from ipujax.doors import graphs
from ipujax.doors.graphs import Graph, Node, Placement, Ref, module_scope, substitute_refs
from ipujax.doors.torch import BLOCK
from ipujax.ground import PopTorchError
from ipujax.pipelines import recomputation_checkpoint
from ipujax.poptorch import name_scope, poptorch_multi_conv
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.poptorch_operators import operator, qualify_operator_name
from ipujax.poptorch.strategies import AutoStage, PipelinedExecution, Place, ShardedExecution

# Operators that only rename a value, which stays on the IPU of the operand.
_NAMES_ONLY = frozenset({"assign", "constant", "getitem"})

_HANDED_ON = qualify_operator_name("handed_on")


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class StagedGraph(Placement):
    """A graph whose operators have pipeline stages and IPUs.

    Attributes:
      graph: it; those of its operators that have a place have the mark `place`, a `Place`.
    """

    graph: Graph

    def place_of(self, node: Node) -> graphs.Place:
        """Returns the stage and IPU of a node."""
        place = node.marks.get("place")
        return super().place_of(node) if place is None else graphs.Place(place.stage, place.ipu)

    def scope_names_of_node(self, node: Node) -> Iterable[str]:
        """The names of a node's modules, blocks and convolutions that run together."""
        names = [*module_scope(node), *node.marks.get(name_scope.MARK, ())]
        scope = node.marks.get(poptorch_multi_conv.MARK)
        return (
            names
            if scope is None
            else [*poptorch_multi_conv.write_multi_conv_scopes(scope), *names]
        )


def check_pipeline_depth(placement: Placement, accumulation: int) -> None:
    """Refuses a pipeline with fewer micro-batches in a weight update than passes.

    Raises:
      PopTorchError: (a `ValueError`) there are fewer.
    """
    stages = len(placement.ipus)
    passes = 2 * stages - 1
    if accumulation < passes:
        raise check.value_error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to "
            f"the number of pipeline stages ({passes}) when using "
            f"poptorch.PipelinedExecution. Please note that a model with {stages} pipeline "
            f"stages in PopTorch will have an additional {stages - 1} stages when training. "
            f"It is {accumulation}",
            f"options.Training.gradientAccumulation({passes}), or more; or fewer stages; or "
            "poptorch.ShardedExecution, where stages run one after the other",
        )


def assign_stages(
    graph: Graph, strategy: PipelinedExecution, variables: Mapping[str, tuple[str, ...]]
) -> StagedGraph:
    """Assigns the operators of a graph to pipeline stages and IPUs.

    Operators before the first block are in the first stage, if that is stage 0 or on IPU 0; else
    they are a stage of their own on IPU 0. Consecutive stages on the same IPU are merged. A
    variable that stages on several IPUs read is on the IPU of the first one, which sends it to the
    others.

    Args:
      graph: a graph whose operators have the marks of blocks.
      strategy: the strategy that gives blocks their stages.
      variables: the names that each variable has in the graph.

    Raises:
      PopTorchError: (a `ValueError`) an operator after the end of a block is in no other block, the
        strategy does not know a block, a stage is on several IPUs, or reads results of a later one.
    """
    placements = _place_nodes(graph, strategy)
    if not placements:
        return StagedGraph(graph=graph, ipus=(0,))
    is_sharded = isinstance(strategy, ShardedExecution)
    ipus = _ipus_of_stages(placements.values(), is_sharded)
    numbers, stage_ipus = _merge_neighbours(ipus)
    merged = {
        node: Place(numbers[placement.stage], placement.ipu)
        for node, placement in placements.items()
    }
    graph = place_nodes(graph, merged)
    count = max(stage_ipus) + 1 if len(stage_ipus) > 1 else 1
    staged_graph = StagedGraph(graph=graph, ipus=stage_ipus, is_sharded=is_sharded, ipu_count=count)
    if staged_graph.is_pipelined:
        _check_stage_order(graph)
        staged_graph = send_shared_variables(staged_graph, variables)
    return staged_graph


def send_shared_variables(
    staged_graph: StagedGraph, variables: Mapping[str, tuple[str, ...]]
) -> StagedGraph:
    """Has variables that stages on several IPUs read be sent by the first stage that does.

    Args:
      staged_graph: the graph.
      variables: the names that each variable has in the graph.
    """
    graph = staged_graph.graph
    for names in variables.values():
        graph = _send_from_first_reader(graph, frozenset(names))
    return dc.replace(staged_graph, graph=graph)


def list_placed_nodes(graph: Graph) -> list[Node]:
    """Lists the nodes that have places: those that compute something from other values."""
    return [node for node in graph.nodes if node.reads and node.operator not in _NAMES_ONLY]


def place_nodes(graph: Graph, places: Mapping[int, Place]) -> Graph:
    """Places nodes, by their `id`."""
    nodes = tuple(
        dc.replace(node, marks={**node.marks, "place": places[id(node)]})
        if id(node) in places
        else node
        for node in graph.nodes
    )
    return dc.replace(graph, nodes=nodes)


def _place_nodes(graph: Graph, strategy: PipelinedExecution) -> dict[int, Place]:
    """Returns the placement of nodes, by `id`; empty if there are no blocks."""
    placer = strategy.create_placer()
    block_placements: dict[object, Place] = {}
    placements: dict[int, Place] = {}
    for node in graph.nodes:
        block = node.marks.get(BLOCK)
        if block is not None:
            if block not in block_placements:
                block_placements[block] = placer.place_block(*block)
            placements[id(node)] = block_placements[block]
    if not block_placements:
        return {}
    placement_before_blocks = _place_before_blocks(block_placements.values(), strategy)
    for node in graph.nodes:
        if id(node) in placements or node.operator in _NAMES_ONLY:
            continue
        if BLOCK in node.marks:
            raise PopTorchError(
                f"No active Block, all the ops must belong to a Block: {node.operator} comes after "
                "the end of one",
                where=node.where,
                fix="put it inside the `with poptorch.Block(...)`, or in one of its own",
            )
        if node.reads:  # a node without operands is computed on the IPU of its readers
            placements[id(node)] = placement_before_blocks
    return placements


def _place_before_blocks(placements: Iterable[Place], strategy: PipelinedExecution) -> Place:
    """Returns the placement of operators before all blocks."""
    first = min(placements, key=lambda placement: placement.stage)
    is_numbered = strategy.stages() or strategy.auto_stage is AutoStage.SameAsIpu
    if first.ipu == 0 or (is_numbered and first.stage == 0):
        return first
    return Place(-1, 0)


def _ipus_of_stages(placements: Iterable[Place], is_sharded: bool) -> dict[int, int]:
    """Returns the IPU of each stage, in the order of the stages."""
    ipus: dict[int, int] = {}
    for stage, ipu in sorted({(placement.stage, placement.ipu) for placement in placements}):
        if ipus.setdefault(stage, ipu) != ipu and not is_sharded:
            raise check.value_error(
                f"stage {stage} has blocks on IPU {ipus[stage]} and on IPU {ipu}: a stage of a "
                "pipeline runs on one",
                "give its blocks the same ipu_id, or say poptorch.Stage(...).ipu(number)",
            )
    return ipus


def _merge_neighbours(ipus: Mapping[int, int]) -> tuple[dict[int, int], tuple[int, ...]]:
    """Merges consecutive stages on one IPU; returns new stage numbers and the stages' IPUs."""
    numbers: dict[int, int] = {}
    stage_ipus: list[int] = []
    for stage, ipu in ipus.items():
        if not stage_ipus or stage_ipus[-1] != ipu:
            stage_ipus.append(ipu)
        numbers[stage] = len(stage_ipus) - 1
    return numbers, tuple(stage_ipus)


def _check_stage_order(graph: Graph) -> None:
    """Checks that no stage reads results of a later stage."""
    latest: dict[str, Node] = {}  # for each value, the operator that determines its stage
    for node in graph.nodes:
        source_nodes = [latest[name] for name in node.reads if name in latest]
        last = max(source_nodes, key=_stage_of_node, default=None)
        if "place" not in node.marks:
            if last is not None:
                latest.update(dict.fromkeys(node.results, last))
            continue
        latest.update(dict.fromkeys(node.results, node))
        if last is not None and _stage_of_node(last) > _stage_of_node(node):
            raise PopTorchError(
                f"the stages are not in order: {_describe_staged_node(node)} is in stage "
                f"{_stage_of_node(node)}, and needs what {_describe_staged_node(last)} computes in "
                f"stage {_stage_of_node(last)}",
                where=node.where,
                fix="list the stages in the order in which the model computes them, or give the "
                "block that comes later a later stage",
            )


def _stage_of_node(node: Node) -> int:
    return node.marks["place"].stage


def _describe_staged_node(node: Node) -> str:
    block = node.marks.get(BLOCK)
    parts = [
        f"block {block.user_id!r}" if block else "what comes before all blocks",
        f"({node.operator} in {node.scope})" if node.scope else f"({node.operator})",
    ]
    return " ".join(parts)


def _send_from_first_reader(graph: Graph, names: frozenset[str]) -> Graph:
    """Makes stages on other IPUs read a variable from the stage that reads it first."""
    if any(names.intersection(node.results) for node in graph.nodes):
        return graph  # a stage changes the variable, and later stages read its result
    readers = {id(n): n for n in graph.nodes if names.intersection(n.reads) and "place" in n.marks}
    if len({node.marks["place"].ipu for node in readers.values()}) < 2:
        return graph
    first_placement = min(
        (node.marks["place"] for node in readers.values()), key=lambda placement: placement.stage
    )
    sent_names = {name: f"{name}.handed_on" for name in names if name in graph.inputs}
    send_nodes = [
        Node(_HANDED_ON, (Ref(name),), {}, (new,), (None,), marks={"place": first_placement})
        for name, new in sent_names.items()
    ]
    nodes = (
        _rename_reads(node, sent_names)
        if id(node) in readers and node.marks["place"].ipu != first_placement.ipu
        else node
        for node in graph.nodes
    )
    return dc.replace(graph, nodes=(*send_nodes, *nodes))


def _rename_reads(node: Node, names: Mapping[str, str]) -> Node:
    """Returns a node that reads values by other names."""
    refs = {name: Ref(names.get(name, name)) for name in node.reads}
    return dc.replace(
        node,
        args=substitute_refs(node.args, refs),
        kwargs=substitute_refs(dict(node.kwargs), refs),
    )


@operator(_HANDED_ON)
def send_variable_to_stages(variable: jax.Array) -> jax.Array:
    """Returns a variable as a value that its stage sends to others."""
    return recomputation_checkpoint(variable)


def log_placement(staged_graph: StagedGraph) -> None:
    """Logs the stage and the IPU of each operator, for debugging, as the original did."""
    logger.debug("enablePipelining set to value %d", staged_graph.is_pipelined)
    mode = "Sharded" if staged_graph.is_sharded else "Pipelined"
    counts_by_name: dict[str, int] = {}
    for node in staged_graph.graph.nodes:
        if node.operator in _NAMES_ONLY:
            continue
        kind = node.operator.split(".")[1].capitalize()
        name = "/".join([*node.scope.split("."), kind] if node.scope else [kind])
        number = counts_by_name[name] = counts_by_name.get(name, -1) + 1
        placement = node.marks.get("place", Place(0, staged_graph.ipus[0]))
        suffix = f"/{number}" if number else ""
        logger.debug(
            "Lowered %s:0%s , mode(%s), ipu(%d), stage(%d)",
            name, suffix, mode, placement.ipu, placement.stage,
        )  # fmt: skip
