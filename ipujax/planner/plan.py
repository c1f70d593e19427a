"""A plan: where to cut a model and how to run its stages, with what that costs and why."""

from __future__ import annotations

import dataclasses as dc
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ipujax.ground import api_boundary, format_duration
from ipujax.planner import plan_files, plan_text
from ipujax.planner.plan_checks import check
from lowering import limit_dir_to


class StageSeconds(NamedTuple):
    """The seconds of a stage's tasks on one micro-batch.

    `backward` includes the gradients of weights and, with recomputation, the forward pass again.
    """

    forward: float
    backward: float


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """A stage of a plan.

    Attributes:
      segments: the first of its segments, and the one after its last.
      ipu: the IPU of the replica that it runs on.
      seconds: what its tasks take on one micro-batch.
      parameter_bytes: bytes of its parameters and of all that stays beside them.
      activation_bytes: bytes that one micro-batch leaves for its backward pass.
      transfer_bytes: bytes that one micro-batch brings from the stage before it; 0 for the first.
      first: the user's line, or the scope, that it begins with; "" where only numbers are known.
      last: the line or scope that it ends with.
    """

    segments: tuple[int, int]
    ipu: int
    seconds: StageSeconds
    parameter_bytes: float
    activation_bytes: float
    transfer_bytes: float
    first: str = ""
    last: str = ""


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """The best of the alternatives that have one schedule and the same further choices.

    Attributes:
      schedule: the registered name of its schedule.
      micro_batches: the micro-batches of an update.
      recompute: whether its stages recompute activations.
      offload: whether activations that wait for the backward pass go to host memory.
      stages: the number of stages of its best cut.
      cut_points: the segments at which the stages of this cut begin, but for the first stage.
      seconds: the seconds of an update with its best cut that is known; None if none fits.
      fullest_bytes: the bytes of the IPU that needs most with this cut, or, if none fits, with the
        cut that needs least.
      why: why it was not chosen; "chosen" for the plan itself.
    """

    schedule: str
    micro_batches: int
    recompute: bool
    offload: bool
    stages: int
    cut_points: tuple[int, ...]
    seconds: float | None
    fullest_bytes: float
    why: str


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """A plan says where to cut a model into the stages of a pipeline, and how to run it.

    Attributes:
      stages: the stages, in the order of the data.
      schedule: the registered name of the schedule.
      micro_batches: the micro-batches of an update, over all replicas.
      recompute: whether stages keep only what enters them, and compute the rest again.
      offload: whether activations that wait for the backward pass go to host memory.
      replicas: how often the stages exist; each replica takes its share of the micro-batches.
      seconds: the time of an update: from the first task to the last, without syncs, and the
        longest update of an IPU.
      bubble: the idle share of the IPUs' time from the first task to the last.
      peak_bytes: the bytes that each IPU of a replica needs.
      fits: whether these are no more than the IPUs have.
      considered: the best of each kind of alternatives, the fastest first.
      lower_bound: seconds that no alternative can be faster than.
      proven: whether no other cut is faster with this schedule under these costs.
      digest: what identifies the function that was planned; "" where only numbers are known.
    """

    stages: tuple[PlannedStage, ...]
    schedule: str
    micro_batches: int
    recompute: bool
    offload: bool
    replicas: int
    seconds: float
    bubble: float
    peak_bytes: tuple[float, ...]
    fits: bool
    considered: tuple[Considered, ...]
    lower_bound: float
    proven: bool
    digest: str = ""

    @property
    def gap(self) -> float:
        """The share by which an update takes longer than the lower bound."""
        return self.seconds / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def device_mapping(self) -> tuple[int, ...]:
        """The IPU of each stage."""
        return tuple(stage.ipu for stage in self.stages)

    @property
    def cut_points(self) -> tuple[int, ...]:
        """The segments at which the stages after the first begin."""
        return tuple(stage.segments[0] for stage in self.stages[1:])

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of `pipelining_ops.value_and_grad` that run the plan."""
        return {
            **({"offload": True} if self.offload else {}),
            "micro_batches": self.micro_batches // self.replicas,
            "stages": self,
            "schedule": self.schedule,
            "recompute": self.recompute,
            "device_mapping": list(self.device_mapping),
        }

    @api_boundary
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file of JSON, which `ipu.planning.load` reads.

        Raises:
          PlanError: a file that cannot be written.
        """
        plan_files.save_plan(self, path)

    def __repr__(self) -> str:
        return f"<Plan {plan_text.describe_choice(self)}: {format_duration(self.seconds)}>"

    def __str__(self) -> str:
        """Returns tables of the stages and of the alternatives that were considered."""
        return plan_text.describe_plan(self)

    def _repr_html_(self) -> str:
        """Returns a drawing of the stages, and the text, for notebooks."""
        return plan_text.draw_plan(self)
