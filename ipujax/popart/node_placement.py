"""The placement of a model's nodes on IPUs and pipeline stages, by their attributes."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Mapping

import jax

from ipujax.doors.graphs import Graph, Node, Place, Placement
from ipujax.ground import PopARTError
from ipujax.popart.options import SessionOptions, VirtualGraphMode
from ipujax.popart.popart_checks import check

IPU = "__ipu_number"
PHASE = "__execution_phase"
STAGE = "__pipeline_stage"


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Placed(Placement):
    """The placement of a model's nodes on IPUs and pipeline stages.

    Attributes:
      mark: the attribute that says the stages.
    """

    mark: str = STAGE

    def place_of(self, node: Node) -> Place:
        """Returns the stage and IPU of a node."""
        return Place(node.marks.get(self.mark), node.marks.get(IPU))

    def check_pipeline_depth(
        self, accumulation: int | None, batches: int, is_training: bool
    ) -> None:
        """Checks that there are enough micro-batches for all stages to run at once.

        Args:
          accumulation: the gradient accumulation factor; None without accumulation.
          batches: the batches of a step.
          is_training: whether there are backward passes, which are stages, too.

        Raises:
          PopARTError: (a `ValueError`) there are too few.
        """
        stages = len(self.ipus)
        needed = 2 * stages - 1 if is_training else stages
        if self.is_pipelined and (accumulation or batches) < needed:
            setting = "gradient accumulation factor" if accumulation else "batchesPerStep"
            raise check.value_error(
                f"For pipelining, depth ({setting}) must equal at least the number of pipeline "
                f"stages ({needed})",
                f"set it to {needed} or more",
            )


def place_by_options(
    graph: Graph, avals: Mapping[str, jax.ShapeDtypeStruct], options: SessionOptions, count: int
) -> Graph:
    """Places a graph's nodes on at most `count` IPUs, where `virtualGraphMode` says by what."""
    if options.virtualGraphMode is VirtualGraphMode.ExecutionPhases:
        phases = options.executionPhaseSettings
        return place_phases_in_turn(graph, phases.phases, phases.stages)
    if options.virtualGraphMode is VirtualGraphMode.Auto:
        return distribute_nodes(graph, avals, count)
    return graph


def distribute_nodes(graph: Graph, avals: Mapping[str, jax.ShapeDtypeStruct], count: int) -> Graph:
    """Places a graph's nodes on IPUs in order, with about the same number of elements on each.

    Args:
      graph: the graph; its own virtual graphs are ignored.
      avals: the shapes of the tensors that are counted: weights and results of nodes.
      count: the number of IPUs.
    """
    counted = [node.reads.union(node.results).intersection(avals) for node in graph.nodes]
    ends = list(itertools.accumulate(sum(avals[n].size for n in names) for names in counted))
    nodes: list[Node] = []
    for node, end in zip(graph.nodes, ends, strict=True):
        ipu = max(0, math.ceil(end * count / max(ends[-1], 1)) - 1)
        nodes.append(dc.replace(node, marks={**node.marks, IPU: ipu}))
    return dc.replace(graph, nodes=tuple(nodes))


def place_phases_in_turn(graph: Graph, phases: int, stages: int) -> Graph:
    """Places the nodes of each execution phase on an IPU: phase p on IPU p mod `stages`.

    Phases run one after the other, each on its IPU, as shards do. A node without a phase is in the
    latest of those that it reads from.

    Args:
      graph: a graph whose nodes have the attributes that a `Builder` sets.
      phases: the number of phases.
      stages: the number of IPUs that take turns.

    Raises:
      PopARTError: (a `ValueError`) a phase that there is not, or a node that reads results of a
        later phase.
    """
    phase_of_name: dict[str, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        latest = max((phase_of_name.get(name, 0) for name in node.reads), default=0)
        phase: int = node.marks.get(PHASE, latest)
        if not latest <= phase < phases:
            raise check.value_error(
                f"{describe_placed_node(node)} has the execution phase {phase}, and reads results "
                f"of phase {latest} of {phases}",
                f"number the phases from 0 to {phases - 1}, in the order of execution",
            )
        phase_of_name.update(dict.fromkeys(node.results, phase))
        nodes.append(dc.replace(node, marks={**node.marks, IPU: phase % stages}))
    return dc.replace(graph, nodes=tuple(nodes))


def read_placement(graph: Graph, is_manual: bool, is_pipelined: bool) -> Placed:
    """Reads the placement of a graph's nodes; without stages, virtual graphs are the stages.

    Args:
      graph: a graph whose nodes have the attributes that a `Builder` sets.
      is_manual: whether virtual graphs are followed.
      is_pipelined: whether pipeline stages are followed.

    Raises:
      PopARTError: (a `ValueError`) a stage is on several IPUs, or all stages on one; only some
        nodes have a stage, numbers are left out, or a stage reads results of a later one; a called
        graph is on another IPU than the call.
    """
    ipus = {node.marks[IPU] for node in graph.nodes if IPU in node.marks} if is_manual else set()
    count = max(ipus, default=0) + 1
    if not is_pipelined:
        return Placed(is_sharded=is_manual and count > 1, ipu_count=count)
    _check_called_graphs(graph)
    has_stages = any(STAGE in node.marks for node in graph.nodes)
    mark = STAGE if has_stages or not is_manual else IPU
    if count == 1:
        raise check.value_error(
            "Pipelining requires more than 1 IPU (currently 1) and a virtualGraphMode",
            "set VirtualGraphMode.Manual and say builder.virtualGraph(tensor, ipu)",
        )
    _check_stages_in_order(graph, mark)
    ipu_of_stage: dict[int, int] = {}
    for node in graph.nodes:
        if mark not in node.marks:
            continue
        stage, ipu = node.marks[mark], node.marks.get(IPU, 0)
        if ipu_of_stage.setdefault(stage, ipu) != ipu:
            node_texts = [
                describe_placed_node(other_node)
                for other_node in graph.nodes
                if other_node.marks.get(mark) == stage
            ]
            raise check.value_error(
                f"Ops {', '.join(node_texts)} have the same pipeline stage {stage}, but different "
                f"virtual graph ids {ipu_of_stage[stage]} and {ipu}",
                "give the nodes of a stage the same virtual graph",
            )
    if sorted(ipu_of_stage) != list(range(len(ipu_of_stage))):
        raise check.value_error(
            f"the pipeline stages are {sorted(ipu_of_stage)}", "number them from 0, without gaps"
        )
    order = tuple(ipu_of_stage[stage] for stage in sorted(ipu_of_stage))
    return Placed(ipus=order, is_sharded=len(order) == 1, ipu_count=count, mark=mark)


def _check_stages_in_order(graph: Graph, mark: str) -> None:
    """Checks that all nodes have a stage, or none, and that none reads results of a later one."""
    missing = [node for node in graph.nodes if mark not in node.marks]
    if missing and len(missing) < len(graph.nodes):
        raise check.value_error(
            "Only some ops have had their pipeline stage set. Ops missing the pipeline stage: "
            + ", ".join(map(describe_placed_node, missing)),
            "give all of them a stage: builder.pipelineStage",
        )
    stage_of_name = {name: node.marks[mark] for node in graph.nodes for name in node.results}
    for node in graph.nodes:
        if late_names := [
            n for n in sorted(node.reads) if stage_of_name.get(n, 0) > node.marks[mark]
        ]:
            raise check.value_error(
                f"Tensor {late_names[0]} is consumed in an earlier pipeline stage than it is "
                "produced",
                "number the stages in the order of execution",
            )


def describe_placed_node(node: Node) -> str:
    """Returns an operator with the names of its results, for people."""
    return f"{node.operator.rpartition('-')[0]} ({', '.join(node.results)})"


def _check_called_graphs(graph: Graph) -> None:
    """Checks that the nodes of called graphs are on the IPU of the call, in a pipeline."""
    for node in graph.nodes:
        if not node.operator.startswith("ai.graphcore.Call-") or IPU not in node.marks:
            continue
        name = node.kwargs["callee"]
        for inner_node in graph.graphs[name].nodes:
            if inner_node.operator.startswith("Constant-"):
                continue
            if IPU not in inner_node.marks:
                raise PopARTError(
                    f'Op Op({inner_node}) in subgraph "{name}" does not have a virtual graph id. '
                    "When pipelining, subgraph ops must have a virtual graph id set."
                )
            if inner_node.marks[IPU] != node.marks[IPU]:
                raise PopARTError(
                    f"The virtual graph id ({inner_node.marks[IPU]}) for Op Op({inner_node}) in "
                    f'subgraph "{name}" does not match the virtual graph id ({node.marks[IPU]}) of '
                    "the calling op. When pipelining, subgraph ops must have a virtual graph id "
                    "matching the calling op."
                )
