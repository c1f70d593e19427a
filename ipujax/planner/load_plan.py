"""Reads a plan from the file that `Plan.save` wrote."""

from __future__ import annotations

import itertools
import os
from typing import Any

from ipujax.ground import api_boundary
from ipujax.planner.plan import Considered, Plan, PlannedStage, StageSeconds
from ipujax.planner.plan_checks import check
from ipujax.planner.plan_files import FieldReader, read_plan_fields

_SECONDS_AND_SHARES = ("seconds", "bubble", "lower_bound")
_FLAGS = ("recompute", "offload", "fits", "proven")


@check.guard
@api_boundary
def load(path: str | os.PathLike[str]) -> Plan:
    """Reads a plan that `Plan.save` wrote; nothing in the file is run.

    Raises:
      PlanError: (a `ValueError`) the file cannot be read, is no plan, or contradicts itself.
    """
    reader = FieldReader(path)
    fields = reader.read_fields(read_plan_fields(path), Plan, "the plan")
    stages = [_read_stage(reader, entry) for entry in reader.read_row(fields["stages"], "stages")]
    considered = reader.read_row(fields["considered"], "considered")
    peak = reader.read_row(fields["peak_bytes"], "peak_bytes")
    plan = Plan(
        stages=tuple(stages),
        schedule=reader.read_text(fields["schedule"], "schedule"),
        micro_batches=reader.read_number(fields["micro_batches"], "micro_batches", is_count=True),
        replicas=reader.read_number(fields["replicas"], "replicas", is_count=True),
        peak_bytes=tuple(reader.read_number(size, "peak_bytes") for size in peak),
        considered=tuple(_read_considered(reader, entry) for entry in considered),
        digest=reader.read_text(fields["digest"], "digest"),
        **{name: reader.read_number(fields[name], name) for name in _SECONDS_AND_SHARES},
        **{name: reader.read_flag(fields[name], name) for name in _FLAGS},
    )
    _check_stages(reader, plan)
    return plan


def _check_stages(reader: FieldReader, plan: Plan) -> None:
    """Raises if the stages do not follow one another, or use IPUs that the plan does not have."""
    ends = [0, *(stage.segments[1] for stage in plan.stages)]
    for stage, (start, end) in zip(plan.stages, itertools.pairwise(ends), strict=True):
        if stage.segments[0] != start or end <= start:
            raise reader.refuse(f"a stage has the segments {stage.segments}")
    used = {stage.ipu for stage in plan.stages}
    if not plan.stages or used != {*range(len(plan.peak_bytes))}:
        raise reader.refuse("its stages are not on the IPUs whose bytes it has")
    if not plan.replicas or not plan.micro_batches or plan.micro_batches % plan.replicas:
        raise reader.refuse("its replicas do not divide its micro-batches")


def _read_stage(reader: FieldReader, entry: Any) -> PlannedStage:
    fields = reader.read_fields(entry, PlannedStage, "a stage")
    segments, seconds = (reader.read_row(fields[name], name) for name in ("segments", "seconds"))
    if (len(segments), len(seconds)) != (2, 2):
        raise reader.refuse(f"a stage has the segments {segments!r:.60}, seconds {seconds!r:.60}")
    first, end = (reader.read_number(value, "a segment", is_count=True) for value in segments)
    sizes = ("parameter_bytes", "activation_bytes", "transfer_bytes")
    return PlannedStage(
        segments=(first, end),
        ipu=reader.read_number(fields["ipu"], "the IPU of a stage", is_count=True),
        seconds=StageSeconds(
            *(reader.read_number(value, "a stage's seconds") for value in seconds)
        ),
        first=reader.read_text(fields["first"], "the line of a stage"),
        last=reader.read_text(fields["last"], "the line of a stage"),
        **{name: reader.read_number(fields[name], name) for name in sizes},
    )


def _read_considered(reader: FieldReader, entry: Any) -> Considered:
    fields = reader.read_fields(entry, Considered, "what was considered")
    seconds = fields["seconds"]
    points = reader.read_row(fields["cut_points"], "cut_points")
    return Considered(
        schedule=reader.read_text(fields["schedule"], "a schedule"),
        micro_batches=reader.read_number(fields["micro_batches"], "micro-batches", is_count=True),
        recompute=reader.read_flag(fields["recompute"], "recompute"),
        offload=reader.read_flag(fields["offload"], "offload"),
        stages=reader.read_number(fields["stages"], "stages", is_count=True),
        cut_points=tuple(reader.read_number(point, "a segment", is_count=True) for point in points),
        seconds=None if seconds is None else reader.read_number(seconds, "seconds"),
        fullest_bytes=reader.read_number(fields["fullest_bytes"], "fullest_bytes"),
        why=reader.read_text(fields["why"], "why"),
    )
