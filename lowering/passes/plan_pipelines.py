"""The planning of pipelines: their schedules, and tasks in the form that schedules need."""

from __future__ import annotations

import itertools
from typing import Any

from lowering.ground import Options
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Var,
    rewrite_equations,
    unique_variables,
)
from lowering.ops import (
    Combination,
    PipelineSpec,
    PlannedPipeline,
    TaskSpec,
    checkpoint_p,
    dequeue_p,
    enqueue_p,
    queues_of,
    repeat_p,
)
from lowering.passes.copy_stages import copy_stages, run_with_copies
from lowering.passes.offload_activations import offload_activations
from lowering.passes.recompute import recompute
from lowering.passes.split_backward import split_backward
from lowering.pipelines import lift_constants_of_tasks, prune_tasks
from lowering.schedules import (
    Phase,
    Schedule,
    ScheduleError,
    build,
    fifo_depths,
    representative_ticks,
    spread_copies,
)


def plan_pipelines(closed: ClosedJaxpr, options: Options, ipus: int) -> ClosedJaxpr:
    """Plans every pipeline, at any depth.

    Before: pipelines have the tasks that tracing gave them, and say which schedule is wanted.
    After:  the schedule is built and simulated; backward tasks are split if it says so, compute
            activations again if the configuration allows it, and fetch them from streaming memory
            if the user asked for that; no task makes unread values, or marks any as checkpoints.
    Raises: ScheduleError: a schedule that does not fit the pipeline, that cannot run, or that
            would use a queue in another order than micro-batch after micro-batch.
    """
    return rewrite_equations(
        closed,
        EquationFinder(is_pipeline),
        lambda rewriter, eqn: _plan_pipeline(rewriter, eqn, options, ipus),
    )


def is_pipeline(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a loop over the micro-batches of a pipeline."""
    return eqn.primitive is repeat_p and eqn.params["pipeline"] is not None


def _plan_pipeline(rewriter: EquationRewriter, eqn: JaxprEqn, options: Options, ipus: int) -> None:
    spec: PipelineSpec = eqn.params["pipeline"]
    schedule = _build_pipeline_schedule(spec, eqn.params["count"], options, ipus)
    # Unread values must be gone before anything asks which values wait for which task.
    body = pruned = prune_tasks(lift_constants_of_tasks(eqn.params["body"]))
    copied: tuple[int, ...] = ()
    if len(schedule.copies) > 1:
        copies = copy_stages(body, spec, schedule)
        body = pruned = copies.body
        copied = copies.copied
    if schedule.splits_backward:
        body = split_backward(body)
    _check_order_of_elements(body, spec, schedule)
    if spec.training:
        body = _keep_less(body, spec, schedule, options)
    if schedule.needs_table:
        _check_needs(body, spec, schedule)
    if body is not pruned:
        body = prune_tasks(body)
    is_checkpoint = EquationFinder(lambda eqn: eqn.primitive is checkpoint_p)
    body = rewrite_equations(body, is_checkpoint, EquationRewriter.replace_by_operands)
    planned = eqn.replace(
        params={
            **eqn.params,
            "body": body,
            "pipeline": _describe_planned(spec, schedule, copied),
        }
    )
    if copied:
        rewriter.replace_by_jaxpr(eqn, run_with_copies(eqn, spec, copied, planned))
    else:
        rewriter.keep_equation(planned)


def _keep_less(
    body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule, options: Options
) -> ClosedJaxpr:
    """Returns a body whose stages compute again, or keep elsewhere, what waits for their gradients.

    They do so in tasks of their own where the schedule has such.
    """
    spread = spread_copies(schedule)
    recomputing, offloading = (
        {stage for kind, stage in spread.kinds if kind == phase}
        for phase in (Phase.RECOMPUTE, Phase.OFFLOAD)
    )
    mode = spec.recomputation if options.allow_recompute else None
    deep = {stage for stage, depth in enumerate(fifo_depths(schedule)) if depth}
    stages = deep if spec.offload_activations else set[int]()
    waiting = fifo_depths(schedule, Phase.BACKWARD)
    last = range(schedule.stages - 1, spread.stages, schedule.stages)
    immediate = {stage for stage in last if not waiting[stage]} - stages - offloading
    body = recompute(body, mode, recomputing, immediate)
    return offload_activations(body, stages, spread.ipus, offloading)


def _describe_planned(
    spec: PipelineSpec, schedule: Schedule, copied: tuple[int, ...]
) -> PlannedPipeline:
    """Returns what is left of a specification; `copied` are the loop variables that copies have."""
    numbers = [*range(len(spec.loop_variables)), *copied]
    counters = [
        position
        for position, number in enumerate(numbers)
        if spec.loop_variables[number].combination is Combination.NUMBER
    ]
    return PlannedPipeline(
        name=spec.name,
        ipus=tuple(group for copy in (spec.ipus, *schedule.copies[1:]) for group in copy),
        schedule=schedule,
        origin=spec.origin,
        variables=(*spec.variables, *(spec.variables[number] for number in copied)),
        counters=tuple(counters),
    )


def _check_order_of_elements(body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule) -> None:
    """Checks that elements come and go in the order of micro-batches, as without a schedule."""
    task_positions_of_queue: dict[Any, dict[tuple[int, str], int]] = {}
    for position, eqn in enumerate(body.jaxpr.eqns):
        task: TaskSpec = eqn.params["spec"]
        for queue in queues_of(eqn.params["body"], dequeue_p, enqueue_p):
            task_positions_of_queue.setdefault(queue, {})[task.stage, task.kind.value] = position
    ticks = spread_copies(schedule).ticks
    for queue, positions in task_positions_of_queue.items():
        order = [
            ((task.micro_batch, positions[task.stage, task.phase.value]), task)
            for tick in representative_ticks(ticks)
            for task in tick
            if (task.stage, task.phase.value) in positions
        ]
        for (earlier_slot, early), (later_slot, late) in itertools.pairwise(order):
            if later_slot < earlier_slot:
                early, late = (t._replace(stage=t.stage % schedule.stages) for t in (early, late))
                raise ScheduleError(
                    f"pipeline `{spec.name}`: {schedule.name} runs {early} before {late}, and both "
                    f"use `{queue.name}`, whose elements are in the order of the micro-batches",
                    where=spec.origin,
                    fix=f"run {late} before {early}, or leave the queue to a stage that runs its "
                    "micro-batches in order",
                )


def _check_needs(body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule) -> None:
    """Checks that tasks wait for all tasks whose results they read."""
    maker: dict[Var, TaskSpec] = {}
    for eqn in body.jaxpr.eqns:
        task: TaskSpec = eqn.params["spec"]
        stage, phase = task.stage % schedule.stages, Phase(task.kind.value)
        for var in unique_variables(eqn.invars):
            if var not in maker:
                continue
            made = Phase(maker[var].kind.value), maker[var].stage % schedule.stages
            if not schedule.layout.runs_before(made, (phase, stage)):
                made_text = f"{made[1]}{made[0]}"
                raise ScheduleError(
                    f"pipeline `{spec.name}`: {stage}{phase} reads what {made_text} makes, and in "
                    f"the needs of {schedule.name} it does not wait for it",
                    where=spec.origin,
                    fix=f'add "{made_text}" to the needs of "{stage}{phase}", or let the stage '
                    "read nothing of it",
                )
        maker.update(dict.fromkeys(eqn.outvars, task))


def _build_pipeline_schedule(
    spec: PipelineSpec, count: int, options: Options, ipus: int
) -> Schedule:
    everywhere = tuple(range(ipus))
    try:
        schedule = build(
            spec.schedule,
            stages=spec.stages,
            micro_batches=count,
            training=spec.training,
            ipus=tuple(of_stage or everywhere for of_stage in spec.ipus),
            io_tiles=options.io_tiles,
        )
        if used := [ipu for ipu in schedule.layout.all_ipus if ipu >= ipus]:
            raise ScheduleError(
                f"{schedule.name} has copies of stages on IPU {used[0]} of {ipus}",
                fix="give it the IPUs that the stages are on, or give the program more IPUs",
            )
        return schedule
    except ScheduleError as error:
        raise ScheduleError(
            f"pipeline `{spec.name}`: {error.what}", where=error.where or spec.origin, fix=error.fix
        ) from error
