"""Backward tasks split into input gradients and weight gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering.jaxprs import jaxpr
from lowering.passes import split_backward
from lowering.pipelines import TaskRole, TaskSpec, prune_tasks, run_as_task, tasks_of_stage
from tests.lowering.pipelines.samples import (
    body_text,
    dense,
    gated,
    micro_batch,
    run,
    squares,
    values_for,
)
from tests.lowering.samples import Queue, V


def test_three_stages(golden):
    golden(body_text(split_backward(micro_batch([dense, gated, squares], Queue("in")))))


@pytest.mark.exhaustive
def test_both_together_give_what_one_gave():
    body = micro_batch([gated, dense, gated, squares])
    values = values_for(body)
    for mine, theirs in zip(run(split_backward(body), values), run(body, values), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_only_the_weights_task_adds():
    split = split_backward(micro_batch([dense, gated, squares]))
    for stage in range(3):
        tasks = tasks_of_stage(split, stage)
        assert not tasks[TaskRole.BACKWARD].params["spec"].accumulated
        (pair,) = tasks[TaskRole.WEIGHTS].params["spec"].accumulated
        assert len(tasks[TaskRole.WEIGHTS].outvars) == 1
        assert pair[1] == 0


def test_input_gradients_wait_for_no_weight_gradient():
    """The product that makes a weight's gradient is in the weights task alone."""
    tasks = tasks_of_stage(prune_tasks(split_backward(micro_batch([dense, dense, squares]))), 1)
    products = {
        kind: [e.primitive.name for e in eqn.params["body"].jaxpr.eqns].count("dot_general")
        for kind, eqn in tasks.items()
    }
    assert products == {TaskRole.FORWARD: 1, TaskRole.BACKWARD: 1, TaskRole.WEIGHTS: 1}


def one_backward(function, operands, accumulated):
    spec = TaskSpec(kind=TaskRole.BACKWARD, stage=0, accumulated=accumulated)
    return jaxpr.trace_flat(lambda *flat: run_as_task(function, flat, spec), [V] * operands)


def test_a_stage_without_variables():
    body = one_backward(lambda ct: [ct * 2], 1, ())
    tasks = tasks_of_stage(split_backward(body), 0)
    assert tasks[TaskRole.WEIGHTS].outvars == []
    assert len(tasks[TaskRole.BACKWARD].outvars) == 1


def test_a_stage_without_inputs():
    body = one_backward(lambda ct, total: [total + ct * 2], 2, ((1, 0),))
    tasks = tasks_of_stage(split_backward(body), 0)
    assert tasks[TaskRole.BACKWARD].outvars == []
    assert len(tasks[TaskRole.WEIGHTS].invars) == 2


def test_prints_happen_once():
    def function(ct, total):
        jax.debug.print("{}", jnp.sin(ct))
        return [ct * 2, total + ct]

    tasks = tasks_of_stage(split_backward(one_backward(function, 2, ((1, 1),))), 0)
    assert tasks[TaskRole.BACKWARD].effects
    assert not tasks[TaskRole.WEIGHTS].effects
    names = [e.primitive.name for e in tasks[TaskRole.BACKWARD].params["body"].jaxpr.eqns]
    assert names[:2] == ["sin", "debug_print"]


def test_forward_tasks_stay():
    body = micro_batch([dense, squares])
    assert split_backward(body).jaxpr.eqns[:2] == body.jaxpr.eqns[:2]
