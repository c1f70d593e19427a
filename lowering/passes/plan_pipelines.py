"""Gives every pipeline its finished schedule, and its tasks the form that the schedule needs."""

from __future__ import annotations

import dataclasses as dc

from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.options import Options
from lowering.passes.offload_activations import offload_activations
from lowering.passes.recompute import recompute
from lowering.passes.rewrite import Anywhere, rewritten
from lowering.passes.split_backward import split_backward
from lowering.pipelines.edit import prune_tasks, without_constants
from lowering.pipelines.task import PipelineSpec
from lowering.schedules import Schedule, ScheduleError, build, simulate
from lowering.streams import repeat_p


def plan_pipelines(closed: ClosedJaxpr, options: Options, ipus: int) -> ClosedJaxpr:
    """Plans every pipeline, at any depth.

    Before: pipelines have the tasks that tracing gave them, and say which schedule is wanted.
    After:  the schedule is built and simulated; backward tasks are split if it says so, compute
            activations again if the configuration allows it, and fetch them from remote memory
            if the user asked for that; no task makes what nobody reads.
    Raises: ScheduleError: a schedule that does not fit the pipeline, or that cannot run.
    """
    return rewritten(
        closed,
        Anywhere(is_pipeline),
        lambda rewriter, eqn: rewriter.keep(_planned(eqn, options, ipus)),
    )


def is_pipeline(eqn: JaxprEqn) -> bool:
    """Whether an equation is a loop over the micro-batches of a pipeline."""
    return eqn.primitive is repeat_p and eqn.params["pipeline"] is not None


def _planned(eqn: JaxprEqn, options: Options, ipus: int) -> JaxprEqn:
    spec: PipelineSpec = eqn.params["pipeline"]
    schedule = _schedule(spec, eqn.params["count"], options, ipus)
    # What nobody reads must be gone before anything looks at what waits for whom.
    body = prune_tasks(without_constants(eqn.params["body"]))
    if schedule.splits_backward:
        body = split_backward(body)
    if options.allow_recompute and spec.training:
        body = recompute(body, spec.recomputation)
    if spec.offload_activations and spec.training:
        body = offload_activations(body, simulate(schedule).fifo_depth, spec.ipus)
    planned = dc.replace(spec, schedule=schedule)
    return eqn.replace(params={**eqn.params, "body": prune_tasks(body), "pipeline": planned})


def _schedule(spec: PipelineSpec, count: int, options: Options, ipus: int) -> Schedule:
    everywhere = tuple(range(ipus))
    try:
        return build(
            spec.schedule,
            stages=spec.stages,
            micro_batches=count,
            training=spec.training,
            ipus=tuple(own or everywhere for own in spec.ipus),
            io_tiles=options.io_tiles,
        )
    except ScheduleError as error:
        raise ScheduleError(
            f"pipeline `{spec.name}`: {error.what}",
            where=error.where or spec.origin,
            fix=error.fix,
        ) from error
