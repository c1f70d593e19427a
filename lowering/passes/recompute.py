"""The recomputation of activations for backward tasks, instead of keeping them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lowering.jaxprs import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    fresh_var,
    jaxpr_of_equations,
    look_up_values,
    rename_atoms,
    replace_equations,
    unique_variables,
)
from lowering.keeping import insert_recomputation_before_readers
from lowering.ops import Recomputation, TaskRole, TaskSpec, checkpoint_p, task_p
from lowering.pipelines import (
    call_without_tracing,
    copy_task_with_kind,
    equations_reading,
    has_effect_besides_collectives,
    replace_equations_by_id,
    replace_task_body,
    select_equations_for,
    stages_with_tasks,
    tasks_of_stage,
    trace_with_untraced_calls,
    variables_depending_on,
    variables_read_from_outside,
)


def recompute(
    body: ClosedJaxpr,
    mode: Recomputation | None,
    scheduled: Collection[int] = (),
    immediate: Collection[int] = (),
) -> ClosedJaxpr:
    """Makes stages run their forward pass again for their backward tasks.

    Before: tasks have no constants; a backward task reads residuals of its forward task.
    After:  it reads instead the stage's inputs, elements of queues, the values that its forward
            task found in buffers that it changes, and the user's checkpoints where `mode`
            interleaves; forward tasks leave no other residuals. Where `mode` interleaves, each
            equation runs again just before its first reader, so that what lies between two
            checkpoints is alive only while the backward pass is between them. What the backward
            pass reads at once stays. Recomputing before everything else is a task (and kernels) of
            its own inside the backward task; where the schedule has tasks for it, a task in front
            of the backward task.

    Args:
      body: a pipeline's body.
      mode: how stages recompute that have no tasks for it; None if they do not.
      scheduled: the stages that have.
      immediate: the stages in which no micro-batch waits: their backward task is the next one after
        their forward task. They keep what lies behind their last checkpoints, as the last stages
        of the originals (tensorflow: pipeline_recomputation.cc; popart:
        Pipeline::setFinalFwdStageRecomputation).
    """
    for stage in stages_with_tasks(body):
        if stage in scheduled:
            body = _recompute_stage(body, stage, Recomputation.THEN_BACKPROPAGATE, as_task=True)
        elif mode is not None:
            body = _recompute_stage(body, stage, mode, as_task=False, immediate=stage in immediate)
    return body


def _recompute_stage(
    body: ClosedJaxpr, stage: int, mode: Recomputation, *, as_task: bool, immediate: bool = False
) -> ClosedJaxpr:
    tasks = tasks_of_stage(body, stage)
    forward, backward = tasks.get(TaskRole.FORWARD), tasks.get(TaskRole.BACKWARD)
    later_tasks = [tasks[kind] for kind in (TaskRole.BACKWARD, TaskRole.WEIGHTS) if kind in tasks]
    read_late = {v for eqn in later_tasks for v in unique_variables(eqn.invars)}
    if forward is None or backward is None:
        return body
    residuals = [v for v in forward.outvars if v in read_late]
    if immediate:
        residuals = _select_before_last_checkpoints(forward, residuals, mode)
    if not residuals:
        return body
    recomputed = _RecomputedSlice(forward, residuals, mode)
    still_read = {*unique_variables(body.jaxpr.outvars), *read_late.difference(residuals)}
    still_read |= {v for v in forward.outvars if _is_read_by_other_tasks(body, v, later_tasks)}
    replacements = {
        id(eqn): [eqn.replace(invars=rename_atoms(eqn.invars, recomputed.made_again))]
        for eqn in later_tasks
    }
    replacements[id(forward)] = [recomputed.build_forward_task(still_read)]
    if as_task:
        replacements[id(backward)].insert(0, recomputed.build_task())
    else:
        replacements[id(backward)] = [recomputed.build_backward_task(backward)]
    return replace_equations_by_id(body, replacements)


def _select_before_last_checkpoints(
    forward: JaxprEqn, residuals: Sequence[Var], mode: Recomputation
) -> list[Var]:
    """Returns the residuals that do not depend on a last checkpoint, if there is one that counts.

    Checkpoints count where recomputation is interleaved; one that leads to another is not the last.
    """
    jaxpr = forward.params["body"].jaxpr
    counts = mode is Recomputation.AND_BACKPROPAGATE
    checkpoints = [eqn for eqn in jaxpr.eqns if counts and eqn.primitive is checkpoint_p]
    if not checkpoints:
        return []
    leading = select_equations_for(jaxpr.eqns, [a for eqn in checkpoints for a in eqn.invars])
    last = [v for eqn in checkpoints if eqn not in leading for v in eqn.outvars]
    behind = variables_depending_on(jaxpr.eqns, last)
    inner_atom_of_result = dict(zip(forward.outvars, jaxpr.outvars, strict=True))
    return [v for v in residuals if behind.isdisjoint(unique_variables([inner_atom_of_result[v]]))]


def _is_read_by_other_tasks(body: ClosedJaxpr, var: Var, late: Sequence[JaxprEqn]) -> bool:
    return any(all(eqn is not task for task in late) for eqn in equations_reading(body, var))


class _RecomputedSlice:
    """The slice of a forward task that makes some of its results once more.

    Attributes:
      residuals: those results.
      interleaves: whether each equation runs again just before its first reader.
      buffers: variables inside the forward task of buffers that it changes.
      kept: variables inside the forward task that are not computed again; `outside` has their names
        outside of it.
      made_again: names for the residuals as they are made again.
    """

    def __init__(self, forward: JaxprEqn, residuals: Sequence[Var], mode: Recomputation):
        self.forward, self.residuals = forward, residuals
        self.interleaves = mode is Recomputation.AND_BACKPROPAGATE
        jaxpr = forward.params["body"].jaxpr
        self.buffers = {jaxpr.invars[operand] for operand, _ in forward.params["spec"].accumulated}
        inner_atom_of_result = dict(zip(forward.outvars, jaxpr.outvars, strict=True))
        residual_atoms = [inner_atom_of_result[v] for v in residuals]
        sources = {v for e in jaxpr.eqns if self.keeps_results_of(e) for v in e.outvars}
        eqns = select_equations_for(jaxpr.eqns, residual_atoms, sources)
        reads = variables_read_from_outside(eqns, residual_atoms)
        self.kept = [v for v in reads if v in sources]
        self.outside = [fresh_var(v.aval) for v in self.kept]
        self.slice = jaxpr_of_equations(jaxpr, reads, residual_atoms, eqns)
        names = dict(zip(jaxpr.invars, forward.invars, strict=True))
        names.update(zip(self.kept, self.outside, strict=True))
        self.operands = [names[v] for v in reads]
        self.made_again = {v: fresh_var(v.aval) for v in residuals}

    def keeps_results_of(self, eqn: JaxprEqn) -> bool:
        """Returns whether results are kept: those of actions, and checkpoints where asked for."""
        if not self.buffers.isdisjoint(unique_variables(eqn.invars)):
            return True  # a counter, say, has another value when this runs again
        return has_effect_besides_collectives(eqn) or (
            self.interleaves and eqn.primitive is checkpoint_p
        )

    def build_forward_task(self, still_read: set[Var]) -> JaxprEqn:
        """Returns the forward task that leaves only kept values and results that are still read."""
        jaxpr = self.forward.params["body"].jaxpr
        pairs = zip(self.forward.outvars, jaxpr.outvars, strict=True)
        results = [pair for pair in pairs if pair[0] in still_read]
        results += zip(self.outside, self.kept, strict=True)
        closed = jaxpr_of_equations(jaxpr, jaxpr.invars, [atom for _, atom in results], jaxpr.eqns)
        return replace_task_body(self.forward, closed, self.forward.invars, [v for v, _ in results])

    def build_task(self) -> JaxprEqn:
        """Returns the task that makes the residuals again."""
        task = copy_task_with_kind(self.forward, TaskRole.RECOMPUTE)
        return replace_task_body(task, self.slice, self.operands, [*self.made_again.values()])

    def build_backward_task(self, backward: JaxprEqn) -> JaxprEqn:
        """Returns the backward task that runs the slice first, and returns its results as well."""
        other_operands = [v for v in unique_variables(backward.invars) if v not in self.made_again]
        operands = unique_variables([*self.operands, *other_operands])
        body: ClosedJaxpr = backward.params["body"]

        def run_slice_and_backward(*flat: Any) -> list[Any]:
            values = dict(zip(operands, flat, strict=True))
            recomputed = self.evaluate_slice(look_up_values(self.operands, values))
            values.update(zip(self.residuals, recomputed, strict=True))
            return [
                *call_without_tracing(body, look_up_values(backward.invars, values)),
                *recomputed,
            ]

        closed = trace_with_untraced_calls(run_slice_and_backward, [atom.aval for atom in operands])
        if self.interleaves:
            closed = _interleave(closed, len(self.slice.jaxpr.eqns))
        return replace_task_body(
            backward, closed, operands, [*backward.outvars, *self.made_again.values()]
        )

    def evaluate_slice(self, operands: Sequence[Any]) -> list[Any]:
        """Evaluates the slice, as a task of its own or among the equations around it."""
        if self.interleaves:
            return call_without_tracing(self.slice, operands)
        forward: TaskSpec = self.forward.params["spec"]
        spec = TaskSpec(kind=TaskRole.RECOMPUTE, stage=forward.stage, options=forward.options)
        return list(task_p.bind(*operands, body=self.slice, spec=spec))


def _interleave(closed: ClosedJaxpr, num_recomputed: int) -> ClosedJaxpr:
    """Moves the first equations, which run again, each in front of its first reader."""
    jaxpr = closed.jaxpr
    recomputed, backward = jaxpr.eqns[:num_recomputed], jaxpr.eqns[num_recomputed:]
    eqns = insert_recomputation_before_readers(recomputed, backward)
    return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), closed.consts)
