"""Changes to the tasks of a pipeline's body: finding, building, rebuilding, pruning them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Var,
    constants_to_arguments,
    fresh_var,
    prune_unused,
    replace_equations,
    unique_variables,
)
from lowering.ops import TaskRole, TaskSpec, is_task


def tasks_of_stage(body: ClosedJaxpr, stage: int) -> dict[TaskRole, JaxprEqn]:
    """Returns the tasks of one stage, by kind."""
    tasks = (eqn for eqn in body.jaxpr.eqns if is_task(eqn))
    return {e.params["spec"].kind: e for e in tasks if e.params["spec"].stage == stage}


def stages_with_tasks(body: ClosedJaxpr) -> list[int]:
    """Returns the stages that a body has tasks for."""
    return sorted({e.params["spec"].stage for e in body.jaxpr.eqns if is_task(e)})


def replace_task_body(
    eqn: JaxprEqn, body: ClosedJaxpr, invars: Sequence[Atom], outvars: Sequence[Var]
) -> JaxprEqn:
    """Returns a task with another body, operands and results; finds its buffers by name."""
    spec: TaskSpec = eqn.params["spec"]
    accumulated_pairs = [(eqn.invars[i], eqn.outvars[o]) for i, o in spec.accumulated]
    accumulated = tuple(
        (_position_of_atom(invars, operand), _position_of_atom(outvars, result))
        for operand, result in accumulated_pairs
        if any(operand is a for a in invars) and any(result is v for v in outvars)
    )
    params = {"body": body, "spec": dc.replace(spec, accumulated=accumulated)}
    return eqn.replace(
        params=params, invars=list(invars), outvars=list(outvars), effects=body.effects
    )


def copy_task_with_kind(eqn: JaxprEqn, kind: TaskRole) -> JaxprEqn:
    """Returns a copy of a task with another kind."""
    spec = dc.replace(eqn.params["spec"], kind=kind)
    return eqn.replace(params={**eqn.params, "spec": spec})


def replace_equations_by_id(
    body: ClosedJaxpr, replacements: Mapping[int, Sequence[JaxprEqn]]
) -> ClosedJaxpr:
    """Returns a body with other equations in the place of some, which are given by `id`."""
    eqns = [
        replacement for eqn in body.jaxpr.eqns for replacement in replacements.get(id(eqn), (eqn,))
    ]
    return ClosedJaxpr(replace_equations(body.jaxpr, eqns, body.jaxpr.outvars), body.consts)


def prune_tasks(body: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the body without unread results of tasks, and without what only they needed."""
    live = set(unique_variables(body.jaxpr.outvars))
    eqns: list[JaxprEqn] = []
    for eqn in reversed(body.jaxpr.eqns):
        if is_task(eqn):
            used = [var in live for var in eqn.outvars]
            task_body, reads = prune_unused(eqn.params["body"], used)
            outvars = [v for v, is_used in zip(eqn.outvars, used, strict=True) if is_used]
            eqn = replace_task_body(eqn, task_body, [eqn.invars[i] for i in reads], outvars)
        live.update(unique_variables(eqn.invars))
        eqns.append(eqn)
    return ClosedJaxpr(replace_equations(body.jaxpr, eqns[::-1], body.jaxpr.outvars), body.consts)


def lift_constants_of_tasks(body: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the body with the constants of its tasks as constants of its own."""
    constvars, consts = list(body.jaxpr.constvars), list(body.consts)
    eqns: list[JaxprEqn] = []
    for eqn in body.jaxpr.eqns:
        if is_task(eqn) and eqn.params["body"].consts:
            task_body, values = constants_to_arguments(eqn.params["body"])
            names = [fresh_var(var.aval) for var in eqn.params["body"].jaxpr.constvars]
            constvars, consts = [*constvars, *names], [*consts, *values]
            eqn = replace_task_body(eqn, task_body, [*names, *eqn.invars], eqn.outvars)
        eqns.append(eqn)
    jaxpr = replace_equations(body.jaxpr, eqns, body.jaxpr.outvars)
    return ClosedJaxpr(jaxpr.replace(constvars=constvars), consts)


def _position_of_atom(atoms: Sequence[Atom], sought: Atom) -> int:
    return next(i for i, atom in enumerate(atoms) if atom is sought)
