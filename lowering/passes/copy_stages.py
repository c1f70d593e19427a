"""The tasks of copies of a pipeline's stages, and the sums over copies after it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Var,
    add_innermost_scope,
    bind_equation,
    fresh_var,
    name_stack,
    rename_atoms,
    replace_equations,
    trace_flat,
    typed_jax,
)
from lowering.ops import (
    Combination,
    PipelineSpec,
    TaskSpec,
    bring_from_storage,
    dequeue_p,
    enqueue_p,
    move_to_storage,
)
from lowering.pipelines import replace_task_body
from lowering.schedules import Schedule, ScheduleError


@dc.dataclass(frozen=True, slots=True)
class CopiedStages:
    """A pipeline's body whose stages have copies.

    Attributes:
      body: the tasks of all copies; it has further loop variables.
      copied: for each further loop variable, the one that it is a copy of.
    """

    body: ClosedJaxpr
    copied: tuple[int, ...]


def copy_stages(body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule) -> CopiedStages:
    """Adds the tasks of the copies of stages to a pipeline's body.

    Before: tasks have no constants.
    After:  stage s of copy c has the tasks of the stage c * stages + s, on its own IPUs, which read
            the same constants and change loop variables of their own. Queues stay where they are.

    Raises:
      ScheduleError: stages with state that passes from one micro-batch to the next.
    """
    _check_state(body, spec, schedule)
    tasks = list(body.jaxpr.eqns)
    invars, outvars = list(body.jaxpr.invars), list(body.jaxpr.outvars)
    first = len(invars) - len(outvars)
    last_copy = schedule.copy_of(schedule.micro_batches - 1)
    copied: list[int] = []
    for copy in range(1, len(schedule.copies)):
        names: dict[Var, Atom] = {}
        owned = [
            number
            for number, variable in enumerate(spec.loop_variables)
            if variable.combination in (Combination.SUM, Combination.NUMBER)
            and body.jaxpr.outvars[number] is not body.jaxpr.invars[first + number]
        ]
        for number in owned:
            variable = body.jaxpr.invars[first + number]
            names[variable] = entering = fresh_var(variable.aval)
            invars.append(entering)
        for task in body.jaxpr.eqns:
            tasks.append(_copy_task(task, copy, schedule, names))
        outvars += rename_atoms([body.jaxpr.outvars[number] for number in owned], names)
        copied += owned
        for number, variable in enumerate(spec.loop_variables):
            if variable.combination is Combination.LAST and copy == last_copy:
                (outvars[number],) = rename_atoms([body.jaxpr.outvars[number]], names)
    jaxpr = replace_equations(body.jaxpr, tasks, outvars).replace(invars=invars)
    return CopiedStages(ClosedJaxpr(jaxpr, body.consts), tuple(copied))


def _check_state(body: ClosedJaxpr, spec: PipelineSpec, schedule: Schedule) -> None:
    """Raises if micro-batches read what others have left, which may be in another copy."""
    entering = body.jaxpr.invars[len(body.jaxpr.invars) - len(body.jaxpr.outvars) :]
    pairs = zip(entering, body.jaxpr.outvars, strict=True)
    for number, (before, after) in enumerate(pairs):
        known = spec.loop_variables[number : number + 1]
        combination = known[0].combination if known else Combination.NONE
        if before is after or combination is not Combination.NONE:
            continue
        role = " ".join(spec.variables[number]) if number < len(spec.variables) else ""
        raise ScheduleError(
            f"pipeline `{spec.name}`: {schedule.name} has copies of stages, and each micro-batch "
            f"changes {role.strip() or 'a loop variable'} for the next one, which may pass through "
            "another copy",
            where=spec.origin,
            fix="use a schedule without copies; or leave out what passes from one micro-batch to "
            "the next: the state of stages, or the running mean of gradients (sum them instead)",
        )


def _copy_task(task: JaxprEqn, copy: int, schedule: Schedule, names: dict[Var, Atom]) -> JaxprEqn:
    """Returns the task of a copy, and adds names of its results."""
    spec: TaskSpec = task.params["spec"]
    pairs = zip(schedule.ipus[spec.stage], schedule.copies[copy][spec.stage], strict=True)
    body = _move_to_ipus(task.params["body"], dict(pairs))
    results = [fresh_var(var.aval) for var in task.outvars]
    moved = replace_task_body(task, body, task.invars, task.outvars)
    params = {
        "body": body,
        "spec": dc.replace(
            moved.params["spec"], stage=copy * schedule.stages + moved.params["spec"].stage
        ),
    }
    invars = rename_atoms(task.invars, names)
    names.update(zip(task.outvars, results, strict=True))
    return moved.replace(invars=invars, outvars=results, params=params)


def _move_to_ipus(body: ClosedJaxpr, ipus: dict[int, int]) -> ClosedJaxpr:
    """Returns a task's body with its equations on other IPUs.

    On one IPU are all equations of its stage; of a stage on several IPUs, those without a mark are
    on all of them, and stay so.
    """
    only_ipu = next(iter(ipus.values())) if len(ipus) == 1 else None
    eqns: list[JaxprEqn] = []
    for eqn in body.jaxpr.eqns:
        shard = marks.read_marks(name_stack(eqn)).shard
        ipu = ipus.get(shard) if only_ipu is None and shard is not None else only_ipu
        # A queue has one place, where its elements are read or written in their order.
        if eqn.primitive in (dequeue_p, enqueue_p) or ipu is None:
            eqns.append(eqn)
        else:
            eqns.append(add_innermost_scope(eqn, marks.write_mark(marks.SHARD, str(ipu))))
    return ClosedJaxpr(replace_equations(body.jaxpr, eqns, body.jaxpr.outvars), body.consts)


def run_with_copies(
    eqn: JaxprEqn, spec: PipelineSpec, copied: Sequence[int], planned: JaxprEqn
) -> ClosedJaxpr:
    """Returns a pipeline as a function that adds up what the copies of its stages have summed.

    Args:
      eqn: the pipeline without copies.
      spec: its specification.
      copied: for each further loop variable, the one that it is a copy of.
      planned: the pipeline with these.
    """
    count = len(eqn.outvars)

    def run(*flat: Any) -> list[Any]:
        first = len(flat) - count
        further: list[Any] = []
        for number in copied:
            zeros = typed_jax.zeros(flat[first + number].shape, flat[first + number].dtype)
            further.append(move_to_storage(zeros, spec.loop_variables[number].storage))
        results = bind_equation(planned, [*flat, *further])
        final = results[:count]
        for number, copy in zip(copied, results[count:], strict=True):
            variable = spec.loop_variables[number]
            if variable.combination is Combination.SUM:
                arrays = (bring_from_storage(x, variable.storage) for x in (final[number], copy))
                final[number] = move_to_storage(_add(*arrays), variable.storage)
        return final

    return trace_flat(run, [atom.aval for atom in eqn.invars])


def _add(first: jax.Array, second: jax.Array) -> jax.Array:
    return first | second if first.dtype == bool else first + second
