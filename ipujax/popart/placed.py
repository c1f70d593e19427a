"""Where the nodes of a model run: the shards and stages that their attributes say."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Mapping

import jax

from ipujax.doors.graphs import Graph, Node, Place, Placement
from ipujax.errors import PopARTError
from ipujax.popart.checks import check

IPU = "__ipu_number"
STAGE = "__pipeline_stage"


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Placed(Placement):
    """The places that the attributes of nodes say.

    Attributes:
      mark: the attribute that says the stages.
    """

    mark: str = STAGE

    def place_of(self, node: Node) -> Place:
        """As `Placement.place_of`."""
        return Place(node.marks.get(self.mark), node.marks.get(IPU))

    def check_depth(self, accumulation: int | None, batches: int, is_training: bool) -> None:
        """Whether there are micro-batches enough for all stages to work at once.

        Args:
          accumulation: of gradients; None without it.
          batches: of a step.
          is_training: whether there are backward passes, which are stages, too.

        Raises:
          PopARTError: (a `ValueError`) there are not.
        """
        stages = len(self.ipus)
        needed = 2 * stages - 1 if is_training else stages
        if self.is_pipelined and (accumulation or batches) < needed:
            what = "gradient accumulation factor" if accumulation else "batchesPerStep"
            raise check.refuse(
                f"For pipelining, depth ({what}) must equal at least the number of pipeline stages "
                f"({needed})",
                f"set it to {needed} or more",
            )


def spread(graph: Graph, avals: Mapping[str, jax.ShapeDtypeStruct], count: int) -> Graph:
    """A graph whose nodes are on so many IPUs in turn, each with about the same share of elements.

    Args:
      graph: whatever it says of IPUs does not count.
      avals: of what counts: weights, and results of nodes.
      count: how many IPUs there are.
    """
    counted = [node.reads.union(node.results).intersection(avals) for node in graph.nodes]
    ends = list(itertools.accumulate(sum(avals[n].size for n in names) for names in counted))
    nodes: list[Node] = []
    for node, end in zip(graph.nodes, ends, strict=True):
        ipu = max(0, math.ceil(end * count / max(ends[-1], 1)) - 1)
        nodes.append(dc.replace(node, marks={**node.marks, IPU: ipu}))
    return dc.replace(graph, nodes=tuple(nodes))


def placed(graph: Graph, is_manual: bool, is_pipelined: bool) -> Placed:
    """The places of a graph's nodes; where none says its stage, virtual graphs are the stages.

    Args:
      graph: whose nodes have the attributes that a `Builder` gives them.
      is_manual: whether virtual graphs count.
      is_pipelined: whether stages do.

    Raises:
      PopARTError: (a `ValueError`) a stage on several IPUs, or all of them on one; nodes without a
        stage beside others with one, numbers that are left out, or a stage that reads what a later
        one gives; graphs that are called and say another IPU than the call.
    """
    ipus = {node.marks[IPU] for node in graph.nodes if IPU in node.marks} if is_manual else set()
    count = max(ipus, default=0) + 1
    if not is_pipelined:
        return Placed(is_sharded=is_manual and count > 1, ipu_count=count)
    _check_calls(graph)
    has_stages = any(STAGE in node.marks for node in graph.nodes)
    mark = STAGE if has_stages or not is_manual else IPU
    if count == 1:
        raise check.refuse(
            "Pipelining requires more than 1 IPU (currently 1) and a virtualGraphMode",
            "set VirtualGraphMode.Manual and say builder.virtualGraph(tensor, ipu)",
        )
    _check_order(graph, mark)
    of_stages: dict[int, int] = {}
    for node in graph.nodes:
        if mark not in node.marks:
            continue
        stage, ipu = node.marks[mark], node.marks.get(IPU, 0)
        if of_stages.setdefault(stage, ipu) != ipu:
            alike = [_named(one) for one in graph.nodes if one.marks.get(mark) == stage]
            raise check.refuse(
                f"Ops {', '.join(alike)} have the same pipeline stage {stage}, but different "
                f"virtual graph ids {of_stages[stage]} and {ipu}",
                "give the nodes of a stage the same virtual graph",
            )
    if sorted(of_stages) != list(range(len(of_stages))):
        raise check.refuse(
            f"the pipeline stages are {sorted(of_stages)}", "number them from 0, without gaps"
        )
    order = tuple(of_stages[stage] for stage in sorted(of_stages))
    return Placed(ipus=order, is_sharded=len(order) == 1, ipu_count=count, mark=mark)


def _check_order(graph: Graph, mark: str) -> None:
    """All nodes say their stage, or none, and none reads what a later stage gives."""
    missing = [node for node in graph.nodes if mark not in node.marks]
    if missing and len(missing) < len(graph.nodes):
        raise check.refuse(
            "Only some ops have had their pipeline stage set. Ops missing the pipeline stage: "
            + ", ".join(map(_named, missing)),
            "give all of them a stage: builder.pipelineStage",
        )
    made = {name: node.marks[mark] for node in graph.nodes for name in node.results}
    for node in graph.nodes:
        if late := [n for n in sorted(node.reads) if made.get(n, 0) > node.marks[mark]]:
            raise check.refuse(
                f"Tensor {late[0]} is consumed in an earlier pipeline stage than it is produced",
                "number the stages in the order of execution",
            )


def _named(node: Node) -> str:
    return f"{node.operator.rpartition('-')[0]} ({', '.join(node.results)})"


def _check_calls(graph: Graph) -> None:
    """In a pipeline, what a call computes is on the IPU of the call, and says so."""
    for node in graph.nodes:
        if not node.operator.startswith("ai.graphcore.Call-") or IPU not in node.marks:
            continue
        name = node.kwargs["callee"]
        for inner in graph.graphs[name].nodes:
            if inner.operator.startswith("Constant-"):
                continue
            if IPU not in inner.marks:
                raise PopARTError(
                    f'Op Op({inner}) in subgraph "{name}" does not have a virtual graph id. When '
                    "pipelining, subgraph ops must have a virtual graph id set."
                )
            if inner.marks[IPU] != node.marks[IPU]:
                raise PopARTError(
                    f"The virtual graph id ({inner.marks[IPU]}) for Op Op({inner}) in subgraph "
                    f'"{name}" does not match the virtual graph id ({node.marks[IPU]}) of the '
                    "calling op. When pipelining, subgraph ops must have a virtual graph id "
                    "matching the calling op."
                )
