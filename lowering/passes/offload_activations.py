"""The storage of values in streaming memory while they wait for their backward tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lowering.jaxprs import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    fresh_var,
    rename_atoms,
    trace_flat,
    unique_variables,
)
from lowering.marks import place_on_shard
from lowering.ops import Storage, TaskRole, bring_from_storage, is_task, move_to_storage
from lowering.pipelines import (
    call_without_tracing,
    copy_task_with_kind,
    replace_equations_by_id,
    replace_task_body,
    stages_with_tasks,
    tasks_of_stage,
    trace_with_untraced_calls,
)

_REMOTE = Storage(remote=True)
_LATER = (TaskRole.RECOMPUTE, TaskRole.BACKWARD, TaskRole.WEIGHTS)  # as they stand in bodies


def offload_activations(
    body: ClosedJaxpr,
    stages: Collection[int],
    ipus: Sequence[tuple[int, ...]],
    scheduled: Collection[int] = (),
) -> ClosedJaxpr:
    """Makes forward tasks store, and backward tasks load, the values between them.

    Args:
      body: a pipeline's body; its tasks have no constants.
      stages: those whose tasks do so.
      ipus: the IPUs of each stage; if there is one, its values wait beside it.
      scheduled: the stages for which the schedule has tasks that store, and others that load.
    """
    made_forward = {
        var
        for eqn in body.jaxpr.eqns
        if is_task(eqn) and eqn.params["spec"].kind is TaskRole.FORWARD
        for var in eqn.outvars
    }
    for stage in stages_with_tasks(body):
        if stage in stages or stage in scheduled:
            ipu = ipus[stage][0] if len(ipus[stage]) == 1 else None
            body = _offload_stage(body, stage, made_forward, ipu, as_tasks=stage in scheduled)
    return body


def _offload_stage(
    body: ClosedJaxpr, stage: int, made_forward: set[Var], ipu: int | None, *, as_tasks: bool
) -> ClosedJaxpr:
    tasks = tasks_of_stage(body, stage)
    later_tasks = [tasks[kind] for kind in _LATER if kind in tasks]
    waiting = [
        v for v in unique_variables(a for e in later_tasks for a in e.invars) if v in made_forward
    ]
    if TaskRole.FORWARD not in tasks or not waiting:
        return body
    forward = tasks[TaskRole.FORWARD]
    stored_vars = {var: fresh_var(var.aval) for var in waiting}
    if as_tasks:
        loaded_vars = {var: fresh_var(var.aval) for var in waiting}
        replacements = {
            id(eqn): [eqn.replace(invars=rename_atoms(eqn.invars, loaded_vars))]
            for eqn in later_tasks
        }
        store, load = _build_tasks(forward, stored_vars, loaded_vars, ipu)
        replacements[id(forward)] = [forward, store]
        replacements[id(later_tasks[0])].insert(0, load)
        return replace_equations_by_id(body, replacements)
    replacements = {id(forward): [_store_in_forward_task(forward, stored_vars, ipu)]}
    replacements.update(
        (id(eqn), [_load_in_backward_task(eqn, stored_vars, ipu)]) for eqn in later_tasks
    )
    return replace_equations_by_id(body, replacements)


def _build_tasks(
    forward: JaxprEqn, stored_vars: dict[Var, Var], loaded_vars: dict[Var, Var], ipu: int | None
) -> tuple[JaxprEqn, JaxprEqn]:
    """Returns a task that stores values, and one that loads them."""

    def store_all(*flat: Any) -> list[Any]:
        with place_on_shard(ipu):
            return [move_to_storage(x, _REMOTE) for x in flat]

    def load_all(*flat: Any) -> list[Any]:
        with place_on_shard(ipu):
            return [bring_from_storage(x, _REMOTE) for x in flat]

    waiting, stored, loaded = [*stored_vars], [*stored_vars.values()], [*loaded_vars.values()]
    avals = [var.aval for var in waiting]
    store = copy_task_with_kind(forward, TaskRole.OFFLOAD)
    load = copy_task_with_kind(forward, TaskRole.LOAD)
    return (
        replace_task_body(store, trace_flat(store_all, avals), waiting, stored),
        replace_task_body(load, trace_flat(load_all, avals), stored, loaded),
    )


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
