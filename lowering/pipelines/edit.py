"""Changes to the tasks of a pipeline's body: finding, building, rebuilding, pruning them."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowering.equations import variables
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Var,
    fresh_var,
    hoisted,
    trace_flat,
    with_eqns,
    without_unused,
)
from lowering.ops.tasks import Kind, TaskSpec, is_task, task_p
from lowering.passes.rewrite import Anywhere, rewritten


def stage_tasks(body: ClosedJaxpr, stage: int) -> dict[Kind, JaxprEqn]:
    """The tasks of one stage, by kind."""
    tasks = (eqn for eqn in body.jaxpr.eqns if is_task(eqn))
    return {e.params["spec"].kind: e for e in tasks if e.params["spec"].stage == stage}


def stages_of(body: ClosedJaxpr) -> list[int]:
    """The stages that a body has tasks for."""
    return sorted({e.params["spec"].stage for e in body.jaxpr.eqns if is_task(e)})


def rebuilt(
    eqn: JaxprEqn, body: ClosedJaxpr, invars: Sequence[Atom], outvars: Sequence[Var]
) -> JaxprEqn:
    """A task with another body, operands and results; its buffers are found again by name."""
    spec: TaskSpec = eqn.params["spec"]
    named = [(eqn.invars[i], eqn.outvars[o]) for i, o in spec.accumulated]
    accumulated = tuple(
        (_position(invars, operand), _position(outvars, result))
        for operand, result in named
        if any(operand is a for a in invars) and any(result is v for v in outvars)
    )
    params = {"body": body, "spec": dc.replace(spec, accumulated=accumulated)}
    return eqn.replace(
        params=params, invars=list(invars), outvars=list(outvars), effects=body.effects
    )


def of_kind(eqn: JaxprEqn, kind: Kind) -> JaxprEqn:
    """A task of another kind for the same stage."""
    spec = dc.replace(eqn.params["spec"], kind=kind)
    return eqn.replace(params={**eqn.params, "spec": spec})


def with_tasks(body: ClosedJaxpr, change: Mapping[int, Sequence[JaxprEqn]]) -> ClosedJaxpr:
    """A body with other equations in the place of some, which are given by `id`."""
    eqns = [new for eqn in body.jaxpr.eqns for new in change.get(id(eqn), (eqn,))]
    return ClosedJaxpr(with_eqns(body.jaxpr, eqns, body.jaxpr.outvars), body.consts)


def call(body: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    """Evaluates a body without looking into it, inside a function that `traced` traces."""
    return list(task_p.bind(*operands, body=body, spec=None))


def traced(function: Callable[..., Any], avals: Sequence[Any]) -> ClosedJaxpr:
    """Traces a function that puts bodies together.

    What is called with `call` is taken over as it stands, since a second trace would need to know
    the axis over which collectives in it are.
    """
    called = Anywhere(lambda eqn: is_task(eqn) and eqn.params["spec"] is None)
    closed = trace_flat(function, avals)
    return rewritten(closed, called, lambda rewriter, eqn: rewriter.open(eqn, eqn.params["body"]))


def prune_tasks(body: ClosedJaxpr) -> ClosedJaxpr:
    """The body without results of tasks that nobody reads, and without what only they needed."""
    live = set(variables(body.jaxpr.outvars))
    eqns: list[JaxprEqn] = []
    for eqn in reversed(body.jaxpr.eqns):
        if is_task(eqn):
            used = [var in live for var in eqn.outvars]
            inner, reads = without_unused(eqn.params["body"], used)
            outvars = [v for v, is_used in zip(eqn.outvars, used, strict=True) if is_used]
            eqn = rebuilt(eqn, inner, [eqn.invars[i] for i in reads], outvars)
        live.update(variables(eqn.invars))
        eqns.append(eqn)
    return ClosedJaxpr(with_eqns(body.jaxpr, eqns[::-1], body.jaxpr.outvars), body.consts)


def without_constants(body: ClosedJaxpr) -> ClosedJaxpr:
    """The body with the constants of its tasks as constants of its own."""
    constvars, consts = list(body.jaxpr.constvars), list(body.consts)
    eqns: list[JaxprEqn] = []
    for eqn in body.jaxpr.eqns:
        if is_task(eqn) and eqn.params["body"].consts:
            inner, values = hoisted(eqn.params["body"])
            names = [fresh_var(var.aval) for var in eqn.params["body"].jaxpr.constvars]
            constvars, consts = [*constvars, *names], [*consts, *values]
            eqn = rebuilt(eqn, inner, [*names, *eqn.invars], eqn.outvars)
        eqns.append(eqn)
    jaxpr = with_eqns(body.jaxpr, eqns, body.jaxpr.outvars)
    return ClosedJaxpr(jaxpr.replace(constvars=constvars), consts)


def _position(atoms: Sequence[Atom], wanted: Atom) -> int:
    return next(i for i, atom in enumerate(atoms) if atom is wanted)
