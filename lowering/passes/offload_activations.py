"""Keeps what waits between forward and backward tasks in remote memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering.equations import renamed, variables
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, Var, fresh_var
from lowering.marks import on_shard
from lowering.ops.storage import Storage, load, store
from lowering.ops.tasks import Kind, is_task
from lowering.pipelines.edit import call, rebuilt, stage_tasks, stages_of, traced, with_tasks

_REMOTE = Storage(remote=True)


def offload_activations(
    body: ClosedJaxpr, depths: Sequence[int], ipus: Sequence[tuple[int, ...]]
) -> ClosedJaxpr:
    """Lets forward tasks store, and backward tasks load, what waits between them.

    Args:
      body: a pipeline's body; its tasks have no constants.
      depths: how many micro-batches wait in each stage; those where none does stay as they are.
      ipus: of each stage; where there is one, values wait beside it, whoever has made them.
    """
    made_forward = {
        var
        for eqn in body.jaxpr.eqns
        if is_task(eqn) and eqn.params["spec"].kind is Kind.FORWARD
        for var in eqn.outvars
    }
    for stage in stages_of(body):
        if depths[stage]:
            body = _stage(body, stage, made_forward, ipus[stage])
    return body


def _stage(
    body: ClosedJaxpr, stage: int, made_forward: set[Var], ipus: tuple[int, ...]
) -> ClosedJaxpr:
    ipu = ipus[0] if len(ipus) == 1 else None
    tasks = stage_tasks(body, stage)
    late = [tasks[kind] for kind in (Kind.BACKWARD, Kind.WEIGHTS) if kind in tasks]
    waiting = [v for v in variables(a for e in late for a in e.invars) if v in made_forward]
    if Kind.FORWARD not in tasks or not waiting:
        return body
    kept = {var: fresh_var(var.aval) for var in waiting}
    change = {id(tasks[Kind.FORWARD]): [_storing(tasks[Kind.FORWARD], kept, ipu)]}
    change.update((id(eqn), [_loading(eqn, kept, ipu)]) for eqn in late)
    return with_tasks(body, change)


def _storing(eqn: JaxprEqn, kept: dict[Var, Var], ipu: int | None) -> JaxprEqn:
    """The task with the stored values as further results, its own or what it has read."""
    body: ClosedJaxpr = eqn.params["body"]
    foreign = [v for v in kept if v not in eqn.outvars and v not in eqn.invars]
    operands = [*eqn.invars, *foreign]

    def function(*flat: Any) -> list[Any]:
        values = dict(zip(operands, flat, strict=True))
        results = call(body, flat[: len(eqn.invars)])
        values.update(zip(eqn.outvars, results, strict=True))
        with on_shard(ipu):
            return [*results, *(store(values[v], _REMOTE) for v in kept)]

    closed = traced(function, [atom.aval for atom in operands])
    return rebuilt(eqn, closed, operands, [*eqn.outvars, *kept.values()])


def _loading(eqn: JaxprEqn, kept: dict[Var, Var], ipu: int | None) -> JaxprEqn:
    """The task that loads what it reads of the stored values."""
    body: ClosedJaxpr = eqn.params["body"]
    invars = renamed(eqn.invars, kept)
    loaded = {i for i, atom in enumerate(invars) if atom is not eqn.invars[i]}

    def function(*flat: Any) -> list[Any]:
        with on_shard(ipu):
            operands = [load(x, _REMOTE) if i in loaded else x for i, x in enumerate(flat)]
        return call(body, operands)

    closed = traced(function, [atom.aval for atom in eqn.invars])
    return rebuilt(eqn, closed, invars, eqn.outvars)
