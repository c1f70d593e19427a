"""A loss function for `value_and_grad` trains in a `Training`, is checked, and brings its IPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import PipelineError
from ipujax.pipelining_ops import check_pipeline, value_and_grad
from ipujax.training import Pipeline, Training
from tests.ipujax.feeding import configure
from tests.ipujax.staged_models import gpt_batch, gpt_loss, gpt_params
from tests.ipujax.staging import mlp_batch, mlp_loss, mlp_params, relative_distance

MICRO_BATCHES = 4


def test_a_loss_with_tied_embeddings_trains_in_a_pipeline() -> None:
    configure(2)
    batch, optimizer = gpt_batch(), optax.sgd(0.1)

    def elements() -> Iterator[Any]:  # a dict alone would go by keyword
        for rows in np.split(np.arange(4), MICRO_BATCHES):
            yield (jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], batch),)

    training = Training(
        Pipeline(gpt_loss), optimizer, accumulation=MICRO_BATCHES, reduction_method="MEAN"
    )
    state = training.fit(training.init(gpt_params()), elements, steps=1)
    _, gradients = jax.jit(jax.value_and_grad(gpt_loss))(gpt_params(), batch)
    updates, _ = optimizer.update(gradients, optimizer.init(gpt_params()))
    expected = optax.apply_updates(gpt_params(), updates)
    assert relative_distance(state.variables, expected) < 1e-6


def test_check_pipeline_compares_with_value_and_grad() -> None:
    step = value_and_grad(mlp_loss, micro_batches=4)
    report = check_pipeline(
        step, args=(mlp_params(), mlp_batch()), schedules=["gpipe", "one_f_one_b"]
    )
    assert report.ok
    assert {row.schedule for row in report.rows} == {"gpipe", "one_f_one_b"}
    assert {row.kind for row in report.rows} == {"loss", "gradient"}


def test_check_pipeline_finds_another_gradient() -> None:
    @jax.custom_vjp
    def bent(x: Any) -> Any:
        return x

    # Its gradient depends on how many rows there are, so on being differentiated in parts.
    bent.defvjp(lambda x: (x, None), lambda _, g: (g * np.random.default_rng().uniform(1, 2),))

    def loss(params: Any, batch: Any) -> Any:
        return mlp_loss({**params, "w0": bent(params["w0"])}, batch)

    report = check_pipeline(value_and_grad(loss, micro_batches=4), args=(mlp_params(), mlp_batch()))
    assert [row.name for row in report.rows if not row.ok] == ["gradient ['w0']"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the arguments of the value_and_grad"),
        ({"args": (1,), "inputs": [1]}, "has no argument inputs"),
        ({"args": (1,), "outfeed_queue": 1}, "has no argument outfeed_queue"),
        ({"args": (1,), "schedules": []}, "names no schedule"),
    ],
)
def test_checks_that_are_refused(options: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        check_pipeline(value_and_grad(mlp_loss, micro_batches=4), **options)


def test_stages_bring_their_ipus_to_an_unconfigured_system() -> None:
    lowered = ipu.compile(value_and_grad(mlp_loss, micro_batches=4)).lower(
        mlp_params(3), mlp_batch()
    )
    assert (lowered.program.ipus, lowered.program.replicas) == (4, 1)
    alone = ipu.compile(lambda x: x + 1).lower(jnp.zeros(3))
    assert (alone.program.ipus, alone.program.replicas) == (1, 1)


OPTIMIZERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(0.1),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_run_where_the_gradients_are(name: str) -> None:
    configure(2)
    optimizer, params, batch = OPTIMIZERS[name], mlp_params(), mlp_batch()
    del params["bias"]

    def loss(params: Any, batch: Any) -> Any:
        return mlp_loss({**params, "bias": 0}, batch)

    def step(params: Any, state: Any, batch: Any, value_and_grad: Any) -> Any:
        value, gradients = value_and_grad(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    staged = value_and_grad(loss, micro_batches=4)
    run = ipu.compile(lambda *args: step(*args, staged))
    lowered = run.lower(params, optimizer.init(params), batch)
    update = lowered.as_text().split("task backward 0")[1]
    moved = [line for line in update.splitlines() if line.startswith("  copy ipu")]
    assert not [line for line in moved if "->" in line and "-> ipu" in line and "[8,8]" in line]
    stayed = [line for line in update.splitlines() if line.startswith("  execute ipu")]
    for number in (0, 1):
        at_home = [line for line in stayed if line.startswith(f"  execute ipu {number}:")]
        assert any("float32[8,8]" in line for line in at_home)
    expected = jax.jit(lambda *args: step(*args, jax.value_and_grad(loss)))
    result = run(params, optimizer.init(params), batch)
    assert relative_distance(result, expected(params, optimizer.init(params), batch)) < 5e-6
