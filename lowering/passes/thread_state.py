"""Control flow that hands a hidden state from body to body, beside its operands."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from lowering.jaxprs import (
    ClosedJaxpr,
    JaxprEqn,
    bind_equation,
    constants_to_arguments,
    evaluate_equations_with,
    function_of_jaxpr,
    trace_flat,
    typed_jax,
)
from lowering.ops import ControlFlow, TaskSpec, is_task, repeat_with_queues

Values = Sequence[Any]
ResultsAndState = tuple[Values, Values]
"""The results of a body, and the state after it."""
Run = Callable[[int, ClosedJaxpr, Values, Values], ResultsAndState]
Axis = tuple[str, int] | None


def thread_state_through(
    eqn: JaxprEqn, operands: Values, state: Values, run: Run, axis: Axis
) -> ResultsAndState:
    """Evaluates control flow whose bodies also take and return a state; used inside a trace.

    In a loop the state is further loop variables. Each task of a pipeline has a state of its own,
    since tasks of several micro-batches run at once; one that leaves its state as it is stays as
    it was.

    Args:
      eqn: the control flow.
      operands: the values of its operands.
      state: the state that the bodies get first.
      run: evaluates a body, once: takes its number, itself, its operands and the state; returns
        results and the new state. That of a condition is ignored. Branches and tasks outside of
        pipelines may return a state without having got one.
      axis: the axis of the replicas, if there are several.

    Returns:
      The results, and the state in the end: of a pipeline, that of each of its tasks in turn.
    """
    flow = ControlFlow.view_of_equation(eqn)
    if flow.pipeline is not None:
        results = _pipeline_with_states(flow, operands, state, run, axis)
    else:
        numbered = enumerate(flow.bodies)
        bodies = [
            _trace_body_with_state(n, body, flow.num_stacked_results, state, run, axis)
            for n, body in numbered
        ]
        results = _FORMS[flow.kind](flow, bodies, operands, state)
    first = len(eqn.outvars) - flow.num_stacked_results
    last = len(results) - flow.num_stacked_results
    return [*results[:first], *results[last:]], results[first:last]


def _trace_body_with_state(
    body_index: int, closed: ClosedJaxpr, num_stacked: int, state: Values, run: Run, axis: Axis
) -> ClosedJaxpr:
    """Returns a body whose last arguments are the state, returned before stacked results."""
    count = len(closed.in_avals)

    def run_body_with_state(*flat: Any) -> list[Any]:
        results, new_state = run(body_index, closed, list(flat[:count]), list(flat[count:]))
        last = len(results) - num_stacked
        return [*results[:last], *new_state, *results[last:]]

    return trace_flat(run_body_with_state, [*closed.in_avals, *map(jax.typeof, state)], axis)


_Bodies = Sequence[ClosedJaxpr]


def _scan_with_state(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    body, count = function_of_jaxpr(bodies[0]), flow.num_loop_variables

    def run_iteration_with_state(carried: Values, rows: Values) -> ResultsAndState:
        constants = operands[flow.constants[0]]
        results = body(*constants, *carried[:count], *rows, *carried[count:])
        return results[: len(carried)], results[len(carried) :]

    start, rows = [*operands[flow.carried], *state], list(operands[flow.elements])
    scan_params = {name: flow.eqn.params[name] for name in ("length", "reverse", "unroll")}
    carried, stacked = lax.scan(run_iteration_with_state, start, rows, **scan_params)
    return [*carried, *stacked]


def _while_with_state(
    flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values
) -> Values:
    test, step = map(function_of_jaxpr, bodies)
    tested, stepped = (operands[part] for part in flow.constants)
    return lax.while_loop(
        lambda carried: test(*tested, *carried)[0],
        lambda carried: step(*stepped, *carried),
        [*operands[flow.carried], *state],
    )


def _switch_with_state(_: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    return typed_jax.switch(
        operands[0], list(map(function_of_jaxpr, bodies)), *operands[1:], *state
    )


def _repeat_with_state(
    flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values
) -> Values:
    body, hidden = constants_to_arguments(bodies[0])
    constants, start = [*hidden, *operands[flow.constants[0]]], [*operands[flow.carried], *state]
    trips = operands[0] if flow.trips is None else flow.trips
    return repeat_with_queues(body, constants, start, trips, flow.eqn.params["loop"], flow.pipeline)


def _task_with_state(flow: ControlFlow, bodies: _Bodies, operands: Values, state: Values) -> Values:
    eqn, hidden = _add_state_to_task(flow.eqn, bodies[0], len(state))
    return bind_equation(eqn, [*hidden, *operands, *state])


_FORMS: dict[str, Callable[[ControlFlow, _Bodies, Values, Values], Values]] = {
    "scan": _scan_with_state,
    "while": _while_with_state,
    "cond": _switch_with_state,
    "ipu_repeat": _repeat_with_state,
    "ipu_task": _task_with_state,
}


def _add_state_to_task(
    eqn: JaxprEqn, body: ClosedJaxpr, num_states: int
) -> tuple[JaxprEqn, list[Any]]:
    """Returns a task with a state, made of buffers, and operands that it takes before the rest."""
    body, hidden = constants_to_arguments(body)
    spec: TaskSpec = eqn.params["spec"]
    state_buffers = ((len(eqn.invars) + i, len(eqn.outvars) + i) for i in range(num_states))
    pairs = ((i + len(hidden), result) for i, result in (*spec.accumulated, *state_buffers))
    params = {"body": body, "spec": dc.replace(spec, accumulated=tuple(pairs))}
    return eqn.replace(params=params), hidden


def _pipeline_with_states(
    flow: ControlFlow, operands: Values, state: Values, run: Run, axis: Axis
) -> Values:
    """Evaluates a pipeline; each task that changes its state has loop variables for it."""
    (body,), size = flow.bodies, len(state)
    tasks: dict[int, tuple[JaxprEqn, list[Any]]] = {}
    for eqn in filter(is_task, body.jaxpr.eqns):
        body_with_state = _trace_body_with_state(
            len(tasks), eqn.params["body"], 0, state, run, axis
        )
        old_state, new_state = (
            body_with_state.jaxpr.invars[-size:],
            body_with_state.jaxpr.outvars[-size:],
        )
        if any(new is not old for new, old in zip(new_state, old_state, strict=True)):
            tasks[id(eqn)] = _add_state_to_task(eqn, body_with_state, size)

    def run_tasks_with_states(*flat: Any) -> list[Any]:
        waiting = list(flat[len(operands) :])

        def evaluate_task_with_state(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
            if id(eqn) not in tasks:
                return bind_equation(eqn, inputs)
            task, hidden = tasks[id(eqn)]
            results = bind_equation(task, [*hidden, *inputs, *waiting[:size]])
            waiting[:] = [*waiting[size:], *results[-size:]]
            return results[:-size]

        return [
            *evaluate_equations_with(body, flat[: len(operands)], evaluate_task_with_state),
            *waiting,
        ]

    states = [*state] * len(tasks)
    closed = trace_flat(run_tasks_with_states, [*body.in_avals, *map(jax.typeof, states)], axis)
    return _repeat_with_state(flow, [closed], operands, states)
