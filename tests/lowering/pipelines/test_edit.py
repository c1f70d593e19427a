"""Changes to the tasks of a pipeline's body."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from lowering.jaxprs import jaxpr
from lowering.pipelines import (
    TaskRole,
    TaskSpec,
    call_without_tracing,
    copy_task_with_kind,
    equations_reading,
    lift_constants_of_tasks,
    prune_tasks,
    replace_task_body,
    run_as_task,
    stages_with_tasks,
    tasks_of_stage,
    trace_with_untraced_calls,
)
from tests.lowering.pipelines.samples import body_text, dense, gated, micro_batch, squares
from tests.lowering.samples import V


def unread_results():
    """A body in which only the first result of the first task leads anywhere."""

    def body(a, b, total):
        first, _ = run_as_task(
            lambda x, y: [jnp.sin(x), jnp.cos(y)], [a, b], TaskSpec(kind=TaskRole.FORWARD, stage=0)
        )
        spec = TaskSpec(kind=TaskRole.BACKWARD, stage=0, accumulated=((1, 1),))
        _, added = run_as_task(lambda x, t: [x * 2, t + x], [first, total], spec)
        return [added]

    return jaxpr.trace_flat(body, [V, V, V])


def test_pruned(golden):
    golden(body_text(prune_tasks(unread_results())))


def test_tasks_are_found_by_stage_and_kind():
    body = micro_batch([dense, gated, squares])
    assert stages_with_tasks(body) == [0, 1, 2]
    tasks = tasks_of_stage(body, 1)
    assert list(tasks) == [TaskRole.FORWARD, TaskRole.BACKWARD]
    carried = tasks[TaskRole.FORWARD].outvars[0]
    assert equations_reading(body, carried) == [tasks_of_stage(body, 2)[kind] for kind in tasks]


def test_a_rebuilt_task_finds_its_buffer():
    *_, eqn = unread_results().jaxpr.eqns
    inner, reads = jaxpr.prune_unused(eqn.params["body"], [False, True])
    new = replace_task_body(eqn, inner, [eqn.invars[i] for i in reads], eqn.outvars[1:])
    assert new.params["spec"].accumulated == ((1, 0),)
    alone, reads = jaxpr.prune_unused(eqn.params["body"], [True, False])
    new = replace_task_body(eqn, alone, [eqn.invars[i] for i in reads], eqn.outvars[:1])
    assert new.params["spec"].accumulated == ()
    assert copy_task_with_kind(new, TaskRole.WEIGHTS).params["spec"].kind is TaskRole.WEIGHTS


def test_constants_of_tasks_become_those_of_the_body():
    table = np.arange(3.0, dtype=np.float32)

    def body(a):
        return run_as_task(lambda x: [x * table], [a], TaskSpec(kind=TaskRole.FORWARD, stage=0))

    closed = jaxpr.trace_flat(body, [V])
    (eqn,) = closed.jaxpr.eqns
    inside = jaxpr.trace_flat(lambda x: [x * jnp.asarray(table)], [V])
    eqn = eqn.replace(params={**eqn.params, "body": inside}, invars=closed.jaxpr.invars)
    closed = jaxpr.ClosedJaxpr(
        jaxpr.replace_equations(closed.jaxpr, [eqn], closed.jaxpr.outvars).replace(constvars=[]), ()
    )
    moved = lift_constants_of_tasks(closed)
    assert len(moved.consts) == 1
    assert not moved.jaxpr.eqns[0].params["body"].consts
    (result,) = jaxpr.run_equations(moved.jaxpr, moved.consts, [jnp.ones(3)])
    np.testing.assert_array_equal(result, table)


@pytest.mark.parametrize("gather", [False, True])
def test_what_is_called_is_not_traced_again(gather):
    """Its collectives could not be: the axis is not there."""
    from jax import lax

    function = (lambda a: [lax.all_gather(a, "r")]) if gather else (lambda a: [lax.psum(a, "r")])
    inner = jaxpr.trace_flat(function, [V], ("r", 2))
    whole = trace_with_untraced_calls(
        lambda a: [2 * x for x in call_without_tracing(inner, [a])], [V]
    )
    names = [eqn.primitive.name for eqn in whole.jaxpr.eqns]
    assert names == ["all_gather" if gather else "psum", "mul"]
