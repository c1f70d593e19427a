"""Where the nodes of a model run: the shards and stages that their attributes say."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable
from typing import Any

from ipujax import schedules
from ipujax.errors import PopARTError
from ipujax.frontends.graphs import Graph, Node
from ipujax.frontends.graphs.evaluate import module_scope
from ipujax.pipelines.places import stage_scope
from ipujax.popart.checks import check
from lowering import marks

IPU = "__ipu_number"
STAGE = "__pipeline_stage"


@dc.dataclass(frozen=True)
class Placed:
    """Where nodes run.

    Attributes:
      ipus: of each pipeline stage; of a model without a pipeline, none.
      is_sharded: whether virtual graphs count.
      count: IPUs of a replica.
      mark: the attribute that says the stages.
    """

    ipus: tuple[int, ...]
    is_sharded: bool
    count: int
    mark: str = STAGE

    @property
    def is_pipelined(self) -> bool:
        """Whether stages work side by side."""
        return len(self.ipus) > 1

    def stage(self, node: Node) -> int | None:
        """The pipeline stage of a node; None if it is in none."""
        return node.marks.get(self.mark) if self.is_pipelined else None

    def scopes(self, node: Node) -> Iterable[str]:
        """The scopes of a node: its stage or its IPU, and its name's."""
        names = module_scope(node)
        if self.is_pipelined:
            stage = self.stage(node)
            return names if stage is None else (stage_scope(stage), *names)
        ipu = node.marks.get(IPU)
        if not self.is_sharded or ipu is None:
            return names
        return (marks.write(marks.SHARD, str(ipu)), *names)

    def pipeline_options(self) -> dict[str, Any]:
        """How `training.Pipeline` runs the stages."""
        is_apart = len(set(self.ipus)) == len(self.ipus)
        schedule = schedules.one_f_one_b if is_apart else schedules.gpipe
        return {"device_mapping": list(self.ipus), "pipeline_schedule": schedule}


def placed(graph: Graph, is_manual: bool, is_pipelined: bool) -> Placed:
    """The places of a graph's nodes; where none says its stage, virtual graphs are the stages.

    Args:
      graph: whose nodes have the attributes that a `Builder` gives them.
      is_manual: whether virtual graphs count.
      is_pipelined: whether stages do.

    Raises:
      PopARTError: (a `ValueError`) a stage on several IPUs, numbers that are left out, or graphs
        that are called and say another IPU than the call.
    """
    ipus = {node.marks[IPU] for node in graph.nodes if IPU in node.marks} if is_manual else set()
    count = max(ipus, default=0) + 1
    if not is_pipelined:
        return Placed((), is_manual and count > 1, count)
    _check_calls(graph)
    has_stages = any(STAGE in node.marks for node in graph.nodes)
    mark = STAGE if has_stages or not is_manual else IPU
    of_stages: dict[int, int] = {}
    for node in graph.nodes:
        if mark not in node.marks:
            continue
        stage, ipu = node.marks[mark], node.marks.get(IPU, 0) if is_manual else 0
        if of_stages.setdefault(stage, ipu) != ipu:
            raise check.refuse(
                f"pipeline stage {stage} has nodes on IPU {of_stages[stage]} and on IPU {ipu}",
                "give the nodes of a stage the same virtual graph",
            )
    if sorted(of_stages) != list(range(len(of_stages))):
        raise check.refuse(
            f"the pipeline stages are {sorted(of_stages)}", "number them from 0, without gaps"
        )
    return Placed(tuple(of_stages[stage] for stage in sorted(of_stages)), is_manual, count, mark)


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
