"""The stages and IPUs on which the nodes of a graph run."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable
from typing import NamedTuple, Self

from ipujax.doors.graphs.evaluate import module_scope
from ipujax.doors.graphs.graph import Node
from ipujax.ground import Keywords
from ipujax.pipelines import ScheduleOrName, ipu_scope_name, schedules, stage_scope_name
from ipujax.planner import Plan


class Place(NamedTuple):
    """The stage and the IPU of a node.

    Attributes:
      stage: the step of a pipeline, from 0; None where the node says none.
      ipu: the IPU of a replica, from 0; None where the node says none.
    """

    stage: int | None
    ipu: int | None


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class Placement:
    """The stages and IPUs on which the nodes of a graph run; front ends say where each node does.

    Attributes:
      ipus: the IPU of each stage.
      is_sharded: whether nodes run on their IPUs one after the other, without a pipeline.
      ipu_count: how many IPUs a replica has.
      plan: the plan that placed the nodes; None where the user did.
    """

    ipus: tuple[int, ...] = ()
    is_sharded: bool = False
    ipu_count: int = 1
    plan: Plan | None = None

    @property
    def is_pipelined(self) -> bool:
        """Returns whether stages work side by side."""
        return len(self.ipus) > 1 and not self.is_sharded

    @property
    def stage_count(self) -> int:
        """Returns how many stages work side by side; 1 without a pipeline."""
        return len(self.ipus) if self.is_pipelined else 1

    def place_of(self, node: Node) -> Place:
        """Returns the place that a node says."""
        del node
        return Place(None, None)

    def scope_names_of_node(self, node: Node) -> Iterable[str]:
        """Returns the names of a node's scopes besides those of its place."""
        return module_scope(node)

    def stage_of(self, node: Node) -> int | None:
        """Returns the stage of a node; None without a pipeline, or where the node says none."""
        return self.place_of(node).stage if self.is_pipelined else None

    def scopes(self, node: Node) -> Iterable[str]:
        """Returns the scopes of a node: its stage or its IPU, and its names."""
        names, place = self.scope_names_of_node(node), self.place_of(node)
        if self.is_pipelined and place.stage is not None:
            return stage_scope_name(place.stage), *names
        if self.is_sharded and self.ipu_count > 1 and place.ipu is not None:
            return ipu_scope_name(place.ipu), *names
        return names

    def run_stages_in_turn(self) -> Self:
        """Returns the same places, with one stage after the other."""
        return dc.replace(self, is_sharded=True)

    def pipeline_options(self) -> Keywords:
        """Returns how `training.Pipeline` runs the stages."""
        is_apart = len(set(self.ipus)) == len(self.ipus)
        schedule: ScheduleOrName = schedules.one_f_one_b if is_apart else schedules.gpipe
        if self.plan is not None:
            schedule = self.plan.schedule
        return {
            "device_mapping": list(self.ipus),
            "pipeline_schedule": schedule,
            "offload_weight_update_variables": False,  # no front end has values off the chip
        }
