"""Gives every pipeline its finished schedule, and its tasks the form that the schedule needs."""

from __future__ import annotations

import itertools
from typing import Any

from lowering.jaxpr import ClosedJaxpr, JaxprEqn
from lowering.ops.streams import dequeue_p, enqueue_p, queues_of, repeat_p
from lowering.ops.tasks import PipelineSpec, PlannedPipeline, TaskSpec
from lowering.options import Options
from lowering.passes.offload_activations import offload_activations
from lowering.passes.recompute import recompute
from lowering.passes.rewrite import Anywhere, rewritten
from lowering.passes.split_backward import split_backward
from lowering.pipelines.edit import prune_tasks, without_constants
from lowering.schedules import Schedule, ScheduleError, build, outline, simulate


def plan_pipelines(closed: ClosedJaxpr, options: Options, ipus: int) -> ClosedJaxpr:
    """Plans every pipeline, at any depth.

    Before: pipelines have the tasks that tracing gave them, and say which schedule is wanted.
    After:  the schedule is built and simulated; backward tasks are split if it says so, compute
            activations again if the configuration allows it, and fetch them from remote memory
            if the user asked for that; no task makes what nobody reads.
    Raises: ScheduleError: a schedule that does not fit the pipeline, that cannot run, or that
            would use a queue in another order than micro-batch after micro-batch.
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
    _check_queues(body, spec, schedule)
    if options.allow_recompute and spec.training:
        body = recompute(body, spec.recomputation)
    if spec.offload_activations and spec.training:
        body = offload_activations(body, simulate(schedule).fifo_depth, spec.ipus)
    planned = PlannedPipeline(
        name=spec.name,
        ipus=spec.ipus,
        schedule=schedule,
        origin=spec.origin,
        variables=spec.variables,
    )
    return eqn.replace(params={**eqn.params, "body": prune_tasks(body), "pipeline": planned})


def _check_queues(body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule) -> None:
    """Elements come and go in the order of micro-batches, as they do without a schedule."""
    users: dict[Any, dict[tuple[int, str], int]] = {}
    for place, eqn in enumerate(body.jaxpr.eqns):
        task: TaskSpec = eqn.params["spec"]
        for queue in queues_of(eqn.params["body"], dequeue_p, enqueue_p):
            users.setdefault(queue, {})[task.stage, task.kind.value] = place
    for queue, places in users.items():
        order = [
            ((task.micro_batch, places[task.stage, task.phase.value]), task)
            for tick in outline(schedule.ticks)
            for task in tick
            if (task.stage, task.phase.value) in places
        ]
        for (before, early), (after, late) in itertools.pairwise(order):
            if after < before:
                raise ScheduleError(
                    f"pipeline `{spec.name}`: {schedule.name} runs {early} before {late}, and both "
                    f"use `{queue.name}`, whose elements are in the order of the micro-batches",
                    where=spec.origin,
                    fix=f"run {late} before {early}, or leave the queue to a stage that runs its "
                    "micro-batches in order",
                )


def _schedule(spec: PipelineSpec, count: int, options: Options, ipus: int) -> Schedule:
    everywhere = tuple(range(ipus))
    try:
        return build(
            spec.schedule,
            stages=spec.stages,
            micro_batches=count,
            training=spec.training,
            ipus=tuple(of_stage or everywhere for of_stage in spec.ipus),
            io_tiles=options.io_tiles,
        )
    except ScheduleError as error:
        raise ScheduleError(
            f"pipeline `{spec.name}`: {error.what}", where=error.where or spec.origin, fix=error.fix
        ) from error
