"""Control flow that hands a hidden state on, from body to body, beside what it computes."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from lowering.control_flow import ControlFlow
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    bind_equation,
    hoisted,
    run_equations,
    trace_flat,
)
from lowering.ops.streams import repeat
from lowering.ops.tasks import TaskSpec, is_task
from lowering.passes.evaluate import evaluate_with

Run = Callable[[int, ClosedJaxpr, list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]]
Axis = tuple[str, int] | None


def threaded(
    eqn: JaxprEqn, operands: Sequence[Any], state: Sequence[Any], run: Run, axis: Axis
) -> tuple[list[Any], list[Any]]:
    """Evaluates control flow whose bodies take and give a state as well; used inside a trace.

    In a loop the state is further loop variables. Each task of a pipeline has a state of its own,
    since tasks of several micro-batches run at once; one that leaves its state as it is stays as
    it was.

    Args:
      eqn: the control flow.
      operands: its values.
      state: what the bodies get first.
      run: evaluates a body, once: its number, itself, its operands and the state; gives results
        and the new state. That of a condition is not looked at. Branches and tasks outside of
        pipelines may give a state without having got one.
      axis: the replicas, if there are several.

    Returns:
      The results, and the state in the end: of a pipeline, that of each of its tasks in turn.
    """
    flow = ControlFlow.of(eqn)
    if flow.pipeline is not None:
        results = _pipeline(flow, operands, state, run, axis)
    else:
        numbered = enumerate(flow.bodies)
        bodies = [_body(n, own, flow.stacked, state, run, axis) for n, own in numbered]
        results = list(_FORMS[flow.kind](flow, bodies, operands, state))
    first = len(eqn.outvars) - flow.stacked
    last = len(results) - flow.stacked
    return [*results[:first], *results[last:]], results[first:last]


def _body(
    number: int, closed: ClosedJaxpr, stacked: int, state: Sequence[Any], run: Run, axis: Axis
) -> ClosedJaxpr:
    """A body whose last arguments are the state, which it gives in front of what is stacked."""
    count = len(closed.in_avals)

    def function(*flat: Any) -> list[Any]:
        results, after = run(number, closed, list(flat[:count]), list(flat[count:]))
        own = len(results) - stacked
        return [*results[:own], *after, *results[own:]]

    return trace_flat(function, [*closed.in_avals, *map(jax.typeof, state)], axis)


def _call(closed: ClosedJaxpr, *operands: Any) -> list[Any]:
    return run_equations(closed.jaxpr, closed.consts, operands)


_Bodies = Sequence[ClosedJaxpr]
_Values = Sequence[Any]


def _scan(flow: ControlFlow, bodies: _Bodies, operands: _Values, state: _Values) -> _Values:
    own = flow.variables

    def step(carried: Any, sliced: Any) -> Any:
        constants = operands[flow.constants[0]]
        results = _call(bodies[0], *constants, *carried[:own], *sliced, *carried[own:])
        return results[: len(carried)], results[len(carried) :]

    start, rows = [*operands[flow.carried], *state], list(operands[flow.elements])
    how = {name: flow.eqn.params[name] for name in ("length", "reverse", "unroll")}
    carried, stacked = lax.scan(step, start, rows, **how)
    return [*carried, *stacked]


def _while(flow: ControlFlow, bodies: _Bodies, operands: _Values, state: _Values) -> _Values:
    (condition, body), (tested, stepped) = bodies, (operands[own] for own in flow.constants)
    return lax.while_loop(
        lambda carried: _call(condition, *tested, *carried)[0],
        lambda carried: _call(body, *stepped, *carried),
        [*operands[flow.carried], *state],
    )


def _cond(flow: ControlFlow, bodies: _Bodies, operands: _Values, state: _Values) -> _Values:
    del flow

    def branch(body: ClosedJaxpr) -> Callable[..., list[Any]]:
        return lambda *given: _call(body, *given)

    return lax.switch(operands[0], [branch(body) for body in bodies], *operands[1:], *state)


def _repeat(flow: ControlFlow, bodies: _Bodies, operands: _Values, state: _Values) -> _Values:
    body, hidden = hoisted(bodies[0])
    constants, start = [*hidden, *operands[flow.constants[0]]], [*operands[flow.carried], *state]
    trips = operands[0] if flow.trips is None else flow.trips
    return repeat(body, constants, start, trips, flow.eqn.params["loop"], flow.pipeline)


def _task(flow: ControlFlow, bodies: _Bodies, operands: _Values, state: _Values) -> _Values:
    eqn, hidden = _as_task(flow.eqn, bodies[0], len(state))
    return bind_equation(eqn, [*hidden, *operands, *state])


_FORMS: dict[str, Callable[[ControlFlow, _Bodies, _Values, _Values], _Values]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "ipu_repeat": _repeat,
    "ipu_task": _task,
}


def _as_task(eqn: JaxprEqn, body: ClosedJaxpr, states: int) -> tuple[JaxprEqn, list[Any]]:
    """A task with a state, each part of which is a buffer, and what it takes before the rest."""
    body, hidden = hoisted(body)
    spec: TaskSpec = eqn.params["spec"]
    more = ((len(eqn.invars) + i, len(eqn.outvars) + i) for i in range(states))
    pairs = ((i + len(hidden), result) for i, result in (*spec.accumulated, *more))
    params = {"body": body, "spec": dc.replace(spec, accumulated=tuple(pairs))}
    return eqn.replace(params=params), hidden


def _pipeline(
    flow: ControlFlow, operands: Sequence[Any], state: Sequence[Any], run: Run, axis: Axis
) -> list[Any]:
    """A loop whose body still is tasks; each that changes its state has variables for it."""
    (body,), size = flow.bodies, len(state)
    tasks: dict[int, tuple[JaxprEqn, list[Any]]] = {}
    for eqn in filter(is_task, body.jaxpr.eqns):
        own = _body(len(tasks), eqn.params["body"], 0, state, run, axis)
        before, after = own.jaxpr.invars[-size:], own.jaxpr.outvars[-size:]
        if any(new is not old for new, old in zip(after, before, strict=True)):
            tasks[id(eqn)] = _as_task(eqn, own, size)

    def whole(*flat: Any) -> list[Any]:
        waiting = list(flat[len(operands) :])

        def stepped(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
            if id(eqn) not in tasks:
                return bind_equation(eqn, inputs)
            task, hidden = tasks[id(eqn)]
            results = bind_equation(task, [*hidden, *inputs, *waiting[:size]])
            waiting[:] = [*waiting[size:], *results[-size:]]
            return results[:-size]

        return [*evaluate_with(body, flat[: len(operands)], stepped), *waiting]

    states = [*state] * len(tasks)
    closed = trace_flat(whole, [*body.in_avals, *map(jax.typeof, states)], axis)
    return list(_repeat(flow, [closed], operands, states))
