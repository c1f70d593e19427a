"""Cuts that a user names, to be compared with those of a search."""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Mapping
from typing import Any, cast

from ipujax.planner.alternative import Alternative, TimedSchedule
from ipujax.planner.costs import Costs
from ipujax.planner.plan import Plan
from ipujax.planner.plan_checks import check
from ipujax.planner.search_arguments import SearchArguments, read_counts, read_flags
from ipujax.planner.stage_costs import StageCosts
from lowering import schedules as _schedules

_KEYS = (
    "stages",
    "micro_batches",
    "schedule",
    "recompute",
    "offload",
    "device_mapping",
    "replicas",
)
_FIX = (
    "give the arguments of value_and_grad: {'stages': [3, 7], 'schedule': 'grouped', "
    "'device_mapping': [0, 1, 0], 'micro_batches': 12}"
)


@dc.dataclass(frozen=True)
class GivenCut:
    """A cut that a user names, with all that is chosen for it.

    Attributes:
      cut_points: the segments at which the stages after the first begin.
      device_mapping: the IPU of each stage.
      schedule: the schedule, as the registry lists it by name.
      micro_batches: the micro-batches of a replica.
      replicas: how many replicas of the pipeline there are.
      recompute: whether stages recompute activations.
      offload: whether activations that wait go to host memory.
    """

    cut_points: tuple[int, ...]
    device_mapping: tuple[int, ...]
    schedule: _schedules.RegisteredSchedule
    micro_batches: int
    replicas: int
    recompute: bool
    offload: bool

    @property
    def total_micro_batches(self) -> int:
        """The micro-batches of all replicas together."""
        return self.micro_batches * self.replicas

    def build_alternative(self, costs: Costs, arguments: SearchArguments) -> Alternative:
        """Returns the alternative whose cut this is: all choices but the cut points.

        Raises:
          PlanError: the schedule cannot have these choices, or the costs have no such segments.
        """
        if self.cut_points and self.cut_points[-1] >= len(costs):
            raise _refuse(f"cuts at segment {self.cut_points[-1]} of {len(costs)}")
        if self.schedule.splits_backward and costs.weight is None:
            raise _refuse("splits the backward pass, and the costs do not")
        if self.offload and not costs.host_bytes_per_second:
            raise _refuse("offloads, and there is no host memory")
        timed = TimedSchedule(self.schedule, self.device_mapping, self.micro_batches)
        if timed.schedule is None:
            raise _refuse(
                f"has {len(self.device_mapping)} stages on the IPUs {[*self.device_mapping]} and "
                f"{self.micro_batches} micro-batches, which {self.schedule.name} cannot have"
            )
        return Alternative(
            timed=timed,
            stage_costs=StageCosts(costs, self.recompute, self.schedule.splits_backward),
            offload=self.offload,
            replicas=self.replicas,
            memory=arguments.memory[: max(self.device_mapping) + 1],
        )


def read_given_cuts(consider: Any, arguments: SearchArguments) -> tuple[GivenCut, ...]:
    """Reads the cuts that a user names.

    Raises:
      PlanError: one of them cannot be.
    """
    entries = check.require_sequence(consider, "consider", "dicts of arguments")
    return tuple(_read_cut(entry, arguments) for entry in entries)


def _read_cut(entry: Any, arguments: SearchArguments) -> GivenCut:
    if not isinstance(entry, Mapping):
        raise _refuse(f"is a {type(entry).__name__}")
    fields = cast("Mapping[str, Any]", entry)
    if unknown := [key for key in fields if key not in _KEYS]:
        raise _refuse(f"has {unknown[0]!r}, and may have {', '.join(_KEYS)}")
    points: Any = fields.get("stages", ())
    points = points.cut_points if isinstance(points, Plan) else points
    points = check.require_sequence(points, "stages of a considered cut", "ints")
    points = [check.require_integer(point, "an entry of stages", 1) for point in points]
    if any(second <= first for first, second in itertools.pairwise(points)):
        raise _refuse(f"has the cut points {points}, which do not ascend")
    mapping = _read_mapping(fields.get("device_mapping"), len(points) + 1, arguments.ipus)
    plain = {s.name: s for s in _schedules.list_schedules() if s.is_plain}
    name = check.require_one_of(fields.get("schedule", "one_f_one_b"), [*plain], "schedule")
    (replicas,) = read_counts("replicas", fields.get("replicas", 1))
    default = arguments.micro_batches[0] // replicas
    (micro_batches,) = read_counts("micro_batches", fields.get("micro_batches", default))
    if micro_batches * replicas not in arguments.micro_batches:
        raise _refuse(
            f"has {micro_batches} micro-batches and {replicas} replicas, and micro_batches are "
            f"{arguments.micro_batches}"
        )
    if (max(mapping) + 1) * replicas > arguments.ipus:
        raise _refuse(f"needs {max(mapping) + 1} IPUs for each of {replicas} replicas")
    (recompute,) = read_flags("recompute", fields.get("recompute", False))
    (offload,) = read_flags("offload", fields.get("offload", False))
    return GivenCut(
        tuple(points), mapping, plain[name], micro_batches, replicas, recompute, offload
    )


def _read_mapping(mapping: Any, stages: int, ipus: int) -> tuple[int, ...]:
    if mapping is None:
        return tuple(range(stages))
    entries = check.require_sequence(mapping, "device_mapping of a considered cut", "ints")
    numbers = [check.require_integer(ipu, "an entry of device_mapping", 0) for ipu in entries]
    if len(numbers) != stages or {*numbers} != {*range(max(numbers) + 1)} or max(numbers) >= ipus:
        raise _refuse(f"has {stages} stages on the IPUs {numbers}, of {ipus}")
    return tuple(numbers)


def _refuse(reason: str) -> Exception:
    return check.value_error(f"a considered cut {reason}", _FIX)
