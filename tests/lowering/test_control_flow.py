"""The view of control flow, and what hands a hidden state through it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.jaxprs import jaxpr
from lowering.ops import ControlFlow, is_control_flow, repeat_p, repeat_with_queues
from lowering.passes.thread_state import thread_state_through
from lowering.pipelines import TaskRole, TaskSpec, run_as_task
from tests.lowering.pipelines.samples import dense, loop_of, micro_batch, pipelined, squares
from tests.lowering.samples import N, S, V, X, trace

COUNT = jnp.int32(0)


def scanned(w, x, xs):
    return lax.scan(lambda c, row: (c * w + row, c), x, xs, reverse=True)


def repeated(w, x, n):
    body = trace(lambda w, x: [x * w], V, V)
    return repeat_with_queues(body, [w], [x], n, None)


def goes_on(w, x):
    return lax.while_loop(lambda c: c[0] < w[0], lambda c: c * w + 1, x)


def chosen(n, w, x):
    return lax.switch(n, [lambda w, x: w + x, lambda w, x: w * x, lambda w, x: x], w, x)


def in_task(w, x):
    return run_as_task(lambda w, x: [w + x], [w, x], TaskSpec(kind=TaskRole.UPDATE))


SAMPLES = {
    "scan": (scanned, (V, V, X)),
    "while": (goes_on, (V, V)),
    "cond": (chosen, (N, V, V)),
    "ipu_repeat": (repeated, (V, V, N)),
    "ipu_task": (in_task, (V, V)),
}


def equation(name):
    fn, args = SAMPLES[name]
    closed = trace(fn, *args)
    (eqn,) = (e for e in closed.jaxpr.eqns if e.primitive.name == name)
    return closed, eqn


@pytest.mark.parametrize("name", SAMPLES)
def test_bodies_take_their_operands(name):
    _, eqn = equation(name)
    flow = ControlFlow.view_of_equation(eqn)
    assert flow.kind == name
    for number, body in enumerate(flow.bodies):
        given = [atom.aval for atom in flow.select_body_operands(number, eqn.invars)]
        rows = len(eqn.invars[flow.elements])
        given[len(given) - rows :] = [jnp.zeros(a.shape[1:]) for a in given[len(given) - rows :]]
        assert [a.shape for a in given] == [a.shape for a in body.in_avals]
        assert len(body.out_avals) == (1 if flow.is_condition(number) else len(eqn.outvars))


def test_roles():
    roles = {name: ControlFlow.view_of_equation(equation(name)[1]) for name in SAMPLES}
    assert {name for name, flow in roles.items() if flow.is_loop} == {"scan", "while", "ipu_repeat"}
    assert {
        name: (f.num_loop_variables, f.num_stacked_results, f.trips) for name, f in roles.items()
    } == {
        "scan": (1, 1, X.shape[0]),
        "while": (1, 0, None),
        "cond": (0, 0, None),
        "ipu_repeat": (1, 0, None),
        "ipu_task": (0, 0, None),
    }
    assert [roles[name].constants[0].start for name in ("cond", "ipu_repeat", "scan")] == [1, 1, 0]
    assert not is_control_flow(trace(jnp.sin, S).jaxpr.eqns[0])


@pytest.mark.parametrize("name", ["while", "ipu_repeat"])
def test_a_loop_rebuilt_with_its_own_parts_is_the_same(name):
    _, eqn = equation(name)
    flow = ControlFlow.view_of_equation(eqn)
    same = flow.replace_bodies_and_constants(
        flow.bodies, [eqn.invars[own] for own in flow.constants]
    )
    assert (same.params, same.invars) == (eqn.params, eqn.invars)


@pytest.mark.parametrize(
    ("name", "times"),
    [("scan", X.shape[0]), ("while", 2), ("cond", 1), ("ipu_repeat", 3), ("ipu_task", 1)],
)
def test_a_hidden_state_goes_through_every_body(name, times):
    """It counts how often a body runs, and results are what they were."""
    _, eqn = equation(name)
    flow = ControlFlow.view_of_equation(eqn)

    def fn(*operands):
        outside = operands[-1].ravel()[0] * 0  # a constant of the control flow

        def counted(number, body, given, state):
            results = jaxpr.run_equations(body.jaxpr, body.consts, given)
            if flow.is_condition(number):
                return results, state
            return [r + outside for r in results], [state[0] + 1 if state else jnp.int32(1)]

        state = [COUNT] if flow.is_loop else []
        results, (count,) = thread_state_through(eqn, operands, state, counted, None)
        return [*results, count]

    w, x = np.array([2.0, 1.0, 1.0], np.float32), np.array([0.1, 1.0, 2.0], np.float32)
    known = {"scan": (w, x, np.ones(X.shape, np.float32)), "cond": (jnp.int32(1), w, x)}
    known |= {"ipu_repeat": (jnp.int32(3), w, x), "ipu_task": (w, x)}
    given = known.get(name, (w, w, x))  # of the loop, its condition and its body
    whole = trace(fn, *given)
    *results, count = jaxpr.run_equations(whole.jaxpr, whole.consts, list(given))
    plain = jaxpr.bind_equation(eqn, list(given))
    for mine, theirs in zip(results, plain, strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert int(count) == times


def test_tasks_of_a_pipeline_that_leave_the_state_alone_stay_as_they_were():
    eqn = loop_of(pipelined(micro_batch([dense, squares]), 2, 4))
    tasks = ControlFlow.view_of_equation(eqn).bodies[0].jaxpr.eqns

    def run(number, body, operands, state):
        numbers.append(number)
        results = jaxpr.run_equations(body.jaxpr, body.consts, operands)
        return results, [s + 1 for s in state] if len(numbers) % 2 else state

    def fn(*operands):
        results, states = thread_state_through(eqn, operands, [COUNT], run, None)
        return [*results, *states]

    numbers = []
    closed = trace(fn, *(atom.aval for atom in eqn.invars))
    (loop,) = (e for e in closed.jaxpr.eqns if e.primitive is repeat_p)
    assert numbers == [0, 1, 1, 2]
    assert len(loop.outvars) == len(eqn.outvars) + 2
    threads = loop.params["body"].jaxpr.eqns
    more = [len(new.outvars) - len(old.outvars) for new, old in zip(threads, tasks, strict=True)]
    assert more == [1, 0, 1, 0]
    buffer = (len(tasks[0].invars), len(tasks[0].outvars))
    assert threads[0].params["spec"].accumulated[-1] == buffer
