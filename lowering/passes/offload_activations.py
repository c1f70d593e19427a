"""The storage of values in streaming memory while they wait for their backward tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering.jaxprs import ClosedJaxpr, JaxprEqn, Var, fresh_var, rename_atoms, unique_variables
from lowering.marks import place_on_shard
from lowering.ops import Storage, TaskRole, bring_from_storage, is_task, move_to_storage
from lowering.pipelines import (
    call_without_tracing,
    replace_equations_by_id,
    replace_task_body,
    stages_with_tasks,
    tasks_of_stage,
    trace_with_untraced_calls,
)

_REMOTE = Storage(remote=True)


def offload_activations(
    body: ClosedJaxpr, depths: Sequence[int], ipus: Sequence[tuple[int, ...]]
) -> ClosedJaxpr:
    """Makes forward tasks store, and backward tasks load, the values between them.

    Args:
      body: a pipeline's body; its tasks have no constants.
      depths: how many micro-batches wait in each stage; stages where none waits stay as they are.
      ipus: the IPUs of each stage; if there is one, its values wait beside it.
    """
    made_forward = {
        var
        for eqn in body.jaxpr.eqns
        if is_task(eqn) and eqn.params["spec"].kind is TaskRole.FORWARD
        for var in eqn.outvars
    }
    for stage in stages_with_tasks(body):
        if depths[stage]:
            body = _offload_stage(body, stage, made_forward, ipus[stage])
    return body


def _offload_stage(
    body: ClosedJaxpr, stage: int, made_forward: set[Var], ipus: tuple[int, ...]
) -> ClosedJaxpr:
    ipu = ipus[0] if len(ipus) == 1 else None
    tasks = tasks_of_stage(body, stage)
    later_tasks = [tasks[kind] for kind in (TaskRole.BACKWARD, TaskRole.WEIGHTS) if kind in tasks]
    waiting = [
        v for v in unique_variables(a for e in later_tasks for a in e.invars) if v in made_forward
    ]
    if TaskRole.FORWARD not in tasks or not waiting:
        return body
    stored_vars = {var: fresh_var(var.aval) for var in waiting}
    replacements = {
        id(tasks[TaskRole.FORWARD]): [
            _store_in_forward_task(tasks[TaskRole.FORWARD], stored_vars, ipu)
        ]
    }
    replacements.update(
        (id(eqn), [_load_in_backward_task(eqn, stored_vars, ipu)]) for eqn in later_tasks
    )
    return replace_equations_by_id(body, replacements)


def _store_in_forward_task(eqn: JaxprEqn, stored_vars: dict[Var, Var], ipu: int | None) -> JaxprEqn:
    """Returns the task with the stored values, its own or its operands, as further results."""
    body: ClosedJaxpr = eqn.params["body"]
    values_of_others = [v for v in stored_vars if v not in eqn.outvars and v not in eqn.invars]
    operands = [*eqn.invars, *values_of_others]

    def run_task_and_store(*flat: Any) -> list[Any]:
        values = dict(zip(operands, flat, strict=True))
        results = call_without_tracing(body, flat[: len(eqn.invars)])
        values.update(zip(eqn.outvars, results, strict=True))
        with place_on_shard(ipu):
            return [*results, *(move_to_storage(values[v], _REMOTE) for v in stored_vars)]

    closed = trace_with_untraced_calls(run_task_and_store, [atom.aval for atom in operands])
    return replace_task_body(eqn, closed, operands, [*eqn.outvars, *stored_vars.values()])


def _load_in_backward_task(eqn: JaxprEqn, stored_vars: dict[Var, Var], ipu: int | None) -> JaxprEqn:
    """Returns the task that loads its operands among the stored values."""
    body: ClosedJaxpr = eqn.params["body"]
    invars = rename_atoms(eqn.invars, stored_vars)
    positions_to_load = {i for i, atom in enumerate(invars) if atom is not eqn.invars[i]}

    def load_and_run_task(*flat: Any) -> list[Any]:
        with place_on_shard(ipu):
            operands = [
                bring_from_storage(x, _REMOTE) if i in positions_to_load else x
                for i, x in enumerate(flat)
            ]
        return call_without_tracing(body, operands)

    closed = trace_with_untraced_calls(load_and_run_task, [atom.aval for atom in eqn.invars])
    return replace_task_body(eqn, closed, invars, eqn.outvars)
