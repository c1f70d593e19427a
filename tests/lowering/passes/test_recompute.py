"""Backward tasks that compute activations again."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering import size_in_bytes
from lowering.jaxprs import jaxpr, unique_variables
from lowering.passes import recompute, split_backward
from lowering.pipelines import (
    Recomputation,
    TaskRole,
    mark_recomputation_checkpoint,
    prune_tasks,
    tasks_of_stage,
)
from tests.lowering.pipelines.samples import (
    body_text,
    dense,
    gated,
    micro_batch,
    run,
    squares,
    values_for,
)
from tests.lowering.samples import Queue

MODES = list(Recomputation)
THEN, AND = MODES


def dropped(w, x):
    """Dropout, whose mask must be the same the second time."""
    key = jax.random.wrap_key_data(jnp.stack([jnp.uint32(3), x[0, 0].astype(jnp.uint32)]))
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), jnp.tanh(x @ w), 0.0)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_three_stages(mode, golden):
    body = micro_batch([dense, gated, squares], Queue("in"))
    golden(body_text(prune_tasks(recompute(body, mode))))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_with_a_weights_task(mode, golden):
    body = split_backward(micro_batch([gated, squares]))
    golden(body_text(prune_tasks(recompute(body, mode))))


@pytest.mark.exhaustive
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_numbers_stay(mode, split):
    body = micro_batch([gated, dropped, dense, squares])
    values = values_for(body)
    wanted = run(body, values)
    divided = split_backward(body) if split else body
    changed = recompute(divided, mode)
    for pruned in (changed, prune_tasks(changed), recompute(divided, mode, immediate=[0, 3])):
        for mine, theirs in zip(run(pruned, values), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def waiting(body, stage):
    """What the backward task reads of what its forward task has made."""
    tasks = tasks_of_stage(body, stage)
    made = set(tasks[TaskRole.FORWARD].outvars)
    return [v for v in tasks[TaskRole.BACKWARD].invars if v in made]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_only_inputs_and_checkpoints_wait(mode):
    body = prune_tasks(recompute(micro_batch([dense, gated, dense, squares], Queue("in")), mode))
    assert len(waiting(body, 0)) == 1  # the element
    assert len(waiting(body, 1)) == (mode is AND)
    assert waiting(body, 2) == []
    for stage in (1, 2, 3):
        tasks = tasks_of_stage(body, stage)
        before = tasks_of_stage(body, stage - 1)[TaskRole.FORWARD].outvars
        assert any(v in before for v in tasks[TaskRole.BACKWARD].invars)
        invars = tasks[TaskRole.BACKWARD].invars
        assert len(set(invars)) == len(invars)


def test_queues_are_read_once():
    body = prune_tasks(recompute(micro_batch([dense, squares], Queue("in")), AND))
    text = body_text(body)
    assert text.count("ipu_dequeue") == 1


def test_prints_happen_once():
    def printing(w, x):
        jax.debug.print("{}", x.sum())
        return jnp.sin(jnp.sin(x @ w))

    body = prune_tasks(recompute(micro_batch([dense, printing, squares]), THEN))
    tasks = tasks_of_stage(body, 1)
    assert tasks[TaskRole.FORWARD].effects
    assert not tasks[TaskRole.BACKWARD].effects


def test_a_checkpoint_stops_the_second_pass():
    """Nothing in front of it runs twice."""
    body = prune_tasks(recompute(micro_batch([dense, gated, squares]), AND))
    names = [
        e.primitive.name for e in tasks_of_stage(body, 1)[TaskRole.BACKWARD].params["body"].eqns
    ]
    assert "tanh" not in names
    assert "cos" in names


@pytest.mark.parametrize(("mode", "again"), [(THEN, 0), (AND, 1)])
def test_at_once_only_what_a_checkpoint_depends_on_runs_again(mode, again):
    """The backward task of such a stage has no product twice that lies behind its checkpoint.

    What lies behind it comes from the forward task, and all numbers stay.
    """

    def two_layers(w, x):
        x = mark_recomputation_checkpoint(jnp.sin(jnp.sin(x @ w) @ w))
        return jnp.sum(jnp.sin(jnp.sin(x @ w) @ w))

    def count_products(body):
        backward = tasks_of_stage(prune_tasks(body), 1)[TaskRole.BACKWARD]
        return str(backward.params["body"]).count("dot_general")

    body = micro_batch([dense, two_layers])
    kept, all_again = count_products(body), count_products(recompute(body, mode))
    changed, values = recompute(body, mode, immediate=[1]), values_for(body)
    assert count_products(changed) == kept + 2 * again
    assert all_again == kept + 4
    for mine, theirs in zip(run(changed, values), run(body, values), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def tower(widths: tuple[int, ...], checkpoints: bool, w: Any, x: Any) -> Any:
    """A stage of layers, each so many times wider inside than what it gives."""
    for width in widths:
        x = mark_recomputation_checkpoint(x) if checkpoints else x
        x = x + jnp.sin(jnp.tile(x @ w, (1, width))) @ jnp.ones((3 * width, 3))
    return x


def most_bytes_of_backward(widths: tuple[int, ...], checkpoints: bool) -> int:
    """The most that the backward task of a tower holds at once, operands of tasks included."""
    stages = [dense, functools.partial(tower, widths, checkpoints), squares]
    body = prune_tasks(recompute(micro_batch(stages), AND))
    inside = tasks_of_stage(body, 1)[TaskRole.BACKWARD].params["body"].jaxpr
    last = {v: n for n, e in enumerate(inside.eqns) for v in unique_variables(e.invars)}
    last |= dict.fromkeys(unique_variables(inside.outvars), len(inside.eqns))
    alive, most = set(inside.invars) & set(last), 0
    for number, eqn in enumerate(inside.eqns):
        alive.update(eqn.outvars)
        most = max(most, sum(size_in_bytes(v.aval) for v in alive))
        alive = {v for v in alive if last.get(v, number) > number}
    return most


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_with_checkpoints_a_backward_task_never_holds_more(widths):
    of_marks, of_none = (most_bytes_of_backward(tuple(widths), each) for each in (True, False))
    assert of_marks <= of_none


def test_between_checkpoints_one_layer_is_alive_at_a_time():
    """Of equal layers, another one adds its checkpoint, and nothing of its inside."""
    few, many = (most_bytes_of_backward((6,) * count, True) for count in (3, 5))
    assert many - few == 2 * 2 * 3 * 4  # two checkpoints of [2, 3] in float32
    few, many = (most_bytes_of_backward((6,) * count, False) for count in (3, 5))
    assert many - few > 5 * 2 * 2 * 3 * 4


def test_a_task_of_its_own_before_everything_else():
    body = prune_tasks(recompute(micro_batch([dense, gated, squares]), THEN))
    first, *others = tasks_of_stage(body, 1)[TaskRole.BACKWARD].params["body"].eqns
    assert first.params["spec"].kind is TaskRole.RECOMPUTE
    assert all(eqn.primitive.name != "ipu_task" for eqn in others)


def test_stages_that_keep_nothing_stay():
    body = micro_batch([lambda w, x: x + w[:2], lambda w, x: jnp.sum(x + w[0])])
    assert recompute(body, AND).jaxpr.eqns == body.jaxpr.eqns


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_collectives_between_replicas(mode):
    """They have an axis by now, which nothing outside the program knows."""
    inner = jaxpr.trace_flat(
        lambda x: [jnp.sin(jax.lax.psum(jnp.sin(x), "replicas"))],
        [jax.ShapeDtypeStruct((3,), jnp.float32)],
        ("replicas", 2),
    )
    body = micro_batch([dense, squares])
    forward = tasks_of_stage(body, 0)[TaskRole.FORWARD]
    eqns = [*forward.params["body"].jaxpr.eqns, *inner.jaxpr.eqns]
    longer = jaxpr.ClosedJaxpr(
        jaxpr.replace_equations(
            forward.params["body"].jaxpr, eqns, forward.params["body"].jaxpr.outvars
        ).replace(invars=[*forward.params["body"].jaxpr.invars, *inner.jaxpr.invars]),
        (),
    )
    assert longer.effects
    extra = jaxpr.fresh_var(inner.in_avals[0])
    new = forward.replace(
        params={**forward.params, "body": longer},
        invars=[*forward.invars, extra],
        effects=longer.effects,
    )
    whole = body.jaxpr.replace(
        eqns=[new if e is forward else e for e in body.jaxpr.eqns],
        invars=[*body.jaxpr.invars, extra],
        effects=longer.effects,
        debug_info=body.jaxpr.debug_info._replace(arg_names=None),
    )
    changed = recompute(jaxpr.ClosedJaxpr(whole, ()), mode)
    assert tasks_of_stage(changed, 0)[TaskRole.BACKWARD].params["body"].eqns
