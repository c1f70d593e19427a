"""Control flow that hands a hidden state on, from body to body, beside what it computes."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from lowering.control_flow import ControlFlow
from lowering.equations import evaluate_with, function_of
from lowering.jaxpr import ClosedJaxpr, JaxprEqn, bind_equation, hoisted, trace_flat
from lowering.ops.streams import repeat
from lowering.ops.tasks import TaskSpec, is_task

Values = Sequence[Any]
Stepped = tuple[Values, Values]
"""What a body gives, and the state after it."""
Run = Callable[[int, ClosedJaxpr, Values, Values], Stepped]
Axis = tuple[str, int] | None


def threaded(eqn: JaxprEqn, operands: Values, state: Values, run: Run, axis: Axis) -> Stepped:
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
        bodies = [_body(n, body, flow.stacked, state, run, axis) for n, body in numbered]
        results = _FORMS[flow.kind](flow, bodies, operands, state)
    first = len(eqn.outvars) - flow.stacked
    last = len(results) - flow.stacked
    return [*results[:first], *results[last:]], results[first:last]


def _body(
    number: int, closed: ClosedJaxpr, stacked: int, state: Values, run: Run, axis: Axis
) -> ClosedJaxpr:
    """A body whose last arguments are the state, which it gives in front of what is stacked."""
    count = len(closed.in_avals)

    def function(*flat: Any) -> list[Any]:
        results, after = run(number, closed, list(flat[:count]), list(flat[count:]))
        last = len(results) - stacked
        return [*results[:last], *after, *results[last:]]

    return trace_flat(function, [*closed.in_avals, *map(jax.typeof, state)], axis)


_Bodies = Sequence[ClosedJaxpr]


def _scan(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    body, count = function_of(bodies[0]), flow.variables

    def step(carried: Values, rows: Values) -> Stepped:
        constants = operands[flow.constants[0]]
        results = body(*constants, *carried[:count], *rows, *carried[count:])
        return results[: len(carried)], results[len(carried) :]

    start, rows = [*operands[flow.carried], *state], list(operands[flow.elements])
    how = {name: flow.eqn.params[name] for name in ("length", "reverse", "unroll")}
    carried, stacked = lax.scan(step, start, rows, **how)
    return [*carried, *stacked]


def _while(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    test, step = map(function_of, bodies)
    tested, stepped = (operands[part] for part in flow.constants)
    return lax.while_loop(
        lambda carried: test(*tested, *carried)[0],
        lambda carried: step(*stepped, *carried),
        [*operands[flow.carried], *state],
    )


def _cond(_: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    return lax.switch(operands[0], list(map(function_of, bodies)), *operands[1:], *state)


def _repeat(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    body, hidden = hoisted(bodies[0])
    constants, start = [*hidden, *operands[flow.constants[0]]], [*operands[flow.carried], *state]
    trips = operands[0] if flow.trips is None else flow.trips
    return repeat(body, constants, start, trips, flow.eqn.params["loop"], flow.pipeline)


def _task(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    eqn, hidden = _as_task(flow.eqn, bodies[0], len(state))
    return bind_equation(eqn, [*hidden, *operands, *state])


_FORMS: dict[str, Callable[[ControlFlow, _Bodies, Values, Values], Values]] = {
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


def _pipeline(flow: ControlFlow, operands: Values, state: Values, run: Run, axis: Axis) -> Values:
    """A loop whose body still is tasks; each that changes its state has variables for it."""
    (body,), size = flow.bodies, len(state)
    tasks: dict[int, tuple[JaxprEqn, list[Any]]] = {}
    for eqn in filter(is_task, body.jaxpr.eqns):
        inner = _body(len(tasks), eqn.params["body"], 0, state, run, axis)
        before, after = inner.jaxpr.invars[-size:], inner.jaxpr.outvars[-size:]
        if any(new is not old for new, old in zip(after, before, strict=True)):
            tasks[id(eqn)] = _as_task(eqn, inner, size)

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
    return _repeat(flow, [closed], operands, states)
