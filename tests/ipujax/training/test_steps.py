"""The numbers of training: those of plain JAX and optax, whatever the loop looks like."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ipujax.errors import TrainingError, TrainingTypeError
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.pipelining_ops import OptimizerFunctionOutput
from ipujax.training import (
    Callback,
    Pipeline,
    ReplicaReduction,
    Run,
    StepOutput,
    Training,
    TrainState,
)
from tests.ipujax.feeding import configure
from tests.ipujax.training.regression import (
    STAGED,
    Watch,
    batches,
    close,
    first_stage,
    last_stage,
    loss_of,
    plain,
    replicas,
    staged_loss,
    trained,
)

ENGINES = ("fused", "replay")
STAGES = Pipeline([first_stage, last_stage])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_is_one_of_optax(engine: str) -> None:
    optimizer = optax.adam(0.1)
    state, watch = trained(Training(loss_of, optimizer, steps_per_loop=3, engine=engine), 6)
    variables, losses = plain(optimizer, 6)
    close(state.variables, variables)
    close(watch.results, losses)
    assert state.step == 6
    assert state.optimizer_state[0].count == 6


@pytest.mark.parametrize("engine", ENGINES)
def test_micro_batches_make_one_update(engine: str) -> None:
    optimizer = optax.sgd(0.05, momentum=0.9)
    state, watch = trained(Training(loss_of, optimizer, accumulation=3, engine=engine), 4)
    variables, losses = plain(optimizer, 4, 3)
    close(state.variables, variables)
    close(watch.results, losses)
    assert state.step == 4


@pytest.mark.parametrize("method", ["mean", "running_mean"])
def test_gradients_of_micro_batches_may_be_averaged(method: str) -> None:
    optimizer = optax.sgd(0.1)
    state, _ = trained(Training(loss_of, optimizer, accumulation=4, reduction_method=method), 3)
    close(state.variables, plain(optimizer, 3, 4, 1 / 4)[0])


def test_accumulators_have_a_dtype_of_their_own() -> None:
    seen: list[Any] = []

    def noted(gradients: Any, params: Any) -> Any:
        seen.append(gradients.dtype)
        return gradients.astype(params.dtype)

    optimizer = optax.chain(optax.stateless(noted), optax.sgd(0.1))
    for dtype in (jnp.bfloat16, lambda variable: jnp.bfloat16):
        training = Training(loss_of, optimizer, accumulation=2, accumulation_dtype=dtype)
        state, _ = trained(training, 2)
        close(state.variables, plain(optax.sgd(0.1), 2, 2)[0], 0.05)
    assert set(seen) == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("reduction", "scale"), [(ReplicaReduction.MEAN, 1 / 2), (ReplicaReduction.SUM, 1)]
)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_replicas_agree_on_gradients(
    reduction: ReplicaReduction, scale: float, accumulation: int
) -> None:
    replicas(2)
    optimizer = optax.sgd(0.05)
    training = Training(loss_of, optimizer, accumulation=accumulation, replica_reduction=reduction)
    state, watch = trained(training, 4)
    variables, losses = plain(optimizer, 4, 2 * accumulation, scale)
    close(state.variables, variables)
    assert watch.results.shape == (4 * accumulation, 2)
    close(watch.results.reshape(-1), losses)


def test_replicas_may_go_their_own_ways() -> None:
    replicas(2)
    training = Training(loss_of, optax.sgd(0.1), replica_reduction=ReplicaReduction.NONE)
    elements = [batch for batch in batches(3) for _ in range(2)]  # the same for both
    state, _ = trained(training, 3, elements)
    close(state.variables, plain(optax.sgd(0.1), 3)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pipeline_trains_like_the_whole_model(engine: str) -> None:
    configure(2)
    optimizer = optax.adam(0.05)
    training = Training(
        STAGES, optimizer, accumulation=4, reduction_method="mean", steps_per_loop=2, engine=engine
    )
    state, watch = trained(training, 4, variables=STAGED)
    variables, losses = plain(optimizer, 4, 4, 1 / 4, loss=staged_loss, variables=STAGED)
    close(state.variables, variables)
    close(watch.results[0], losses)
    assert state.step == 4


def test_a_pipeline_of_replicas_takes_a_function_that_makes_the_optimizer() -> None:
    configure(4)

    def optimizer(loss: jax.Array) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optax.sgd(0.05), loss)

    training = Training(STAGES, optimizer, accumulation=4)
    start = training.init(STAGED, optimizer_state=optax.sgd(0.05).init(STAGED))
    state = training.fit(start, batches, 2)
    close(
        state.variables,
        plain(optax.sgd(0.05), 2, 8, 1 / 2, loss=staged_loss, variables=STAGED)[0],
    )


def test_what_the_pipeline_takes_by_name_is_handed_on() -> None:
    configure(2)
    options = {"device_mapping": [1, 0], "outfeed_loss": True}
    training = Training(Pipeline(STAGES.stages, options), optax.sgd(0.1), accumulation=4)
    start = training.init(STAGED)
    text = training.compile(start, batches, 1).lowered.as_text()
    assert "task forward 0\n        stream-in ipu 1" in text
    watch = Watch()
    training.fit(start, batches, 1, [watch])
    assert watch.results.shape == (4,)  # the bare loss, in no list


def counting(weights: jax.Array, state: Any, x: jax.Array, y: jax.Array) -> StepOutput:
    """A model that counts its micro-batches, and keeps the mean of the last one."""
    loss = loss_of(weights, x, y)
    new = {"count": state["count"] + 1, "mean": x.mean()}
    return StepOutput(loss, {"loss": loss, "seen": new["count"]}, new)


INITIAL = {"count": np.int32(0), "mean": np.float32(0)}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_untrained_state_goes_along(accumulation: int) -> None:
    training = Training(counting, optax.sgd(0.01), accumulation=accumulation, steps_per_loop=2)
    state = training.init(np.zeros(3, np.float32), INITIAL)
    for _ in range(2):
        state = training.fit(state, batches, 2)
    assert int(state.state["count"]) == 4 * accumulation
    close(state.state["mean"], list(batches(2 * accumulation))[-1][0].mean())
    assert state.step == 4


def test_untrained_state_is_averaged_over_replicas() -> None:
    replicas(2)
    training = Training(counting, optax.sgd(0.01))
    state = training.fit(training.init(np.zeros(3, np.float32), INITIAL), batches, 3)
    last = list(batches(6))[-2:]
    close(state.state["mean"], np.mean([x.mean() for x, _ in last]))
    assert int(state.state["count"]) == 3


def test_inputs_are_made_anew_before_each_device_loop() -> None:
    def loss(weights: jax.Array, rate: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return rate * loss_of(weights, x, y)

    training = Training(
        loss, optax.sgd(1.0), steps_per_loop=2, inputs=lambda state: (0.1 / (1 + state.step),)
    )
    state, _ = trained(training, 4)
    schedule = optax.sgd(optax.piecewise_constant_schedule(0.1, {2: 1 / 3}))
    close(state.variables, plain(schedule, 4)[0])


def test_elements_may_come_by_keyword() -> None:
    elements = [{"y": y, "x": x} for x, y in batches(4)]
    state, _ = trained(Training(loss_of, optax.sgd(0.1)), 4, elements)
    close(state.variables, plain(optax.sgd(0.1), 4)[0])


def test_an_outfeed_may_keep_the_last_result_of_a_loop() -> None:
    class Last(Callback):
        def after_run(self, run: Run, results: Any) -> None:
            kept.append(results)

    kept: list[Any] = []
    last = IPUOutfeedMode.LAST
    training = Training(loss_of, optax.sgd(0.1), steps_per_loop=2, outfeed_mode=last)
    training.fit(training.init(np.zeros(3, np.float32)), batches, 4, [Last()])
    close(np.array(kept), plain(optax.sgd(0.1), 4)[1][1::2])


def test_a_state_is_a_pytree_that_numpy_can_keep() -> None:
    training = Training(loss_of, optax.adam(0.1))
    half, _ = trained(training, 2)
    names = [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree.leaves_with_path(half)
    ]
    assert {"variables", "step", "optimizer_state/0/count"} <= set(names)
    saved = jax.tree.map(np.asarray, half)
    data = list(batches(4))[2:]
    state = training.fit(saved, data, 2)
    close(state.variables, plain(optax.adam(0.1), 4)[0])
    assert state.step == 4


def make(*arguments: Any, **options: Any) -> Training:
    """A training of the small model, with something else in it."""
    return Training(*(arguments or (loss_of, optax.sgd(0.1))), **options)


def two_outputs(variables: Any, x: jax.Array, y: jax.Array) -> Any:
    return last_stage(variables, x, y), y


ALONE = Pipeline([first_stage, two_outputs])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make(loss_of, "sgd"), "optax gradient transformation"),
        (lambda: make(loss_of, lambda loss: loss), "optax gradient transformation"),
        (lambda: make([first_stage], optax.sgd(0.1)), "ipu.training.Pipeline"),
        (lambda: make(accumulation_dtype="x"), "accumulation_dtype"),
        (lambda: make(steps_per_loop=1.5), "steps_per_loop is 1.5"),
        (lambda: make(replica_reduction="mean"), "must be a ReplicaReduction"),
        (lambda: make(outfeed_mode="all"), "must be an IPUOutfeedMode"),
        (lambda: make(inputs=[1]), "inputs is .*must be a function"),
        (lambda: make().fit(STAGED, batches, 1), "must be a TrainState"),
        (lambda: make().fit(TrainState(1.0), batches, 1, [print]), "must be a Callback"),
    ],
)
def test_what_is_of_a_wrong_type_is_told(call: Any, says: str) -> None:
    with pytest.raises((TrainingTypeError, TrainingError), match=says):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make(accumulation=0), "at least 1"),
        (lambda: make(awaits_results=False), "results of several steps"),
        (lambda: trained(make(), None), "neither `steps` nor"),
        (lambda: trained(make(), -1), "at least 0"),
        (lambda: make(STAGES, lambda loss: loss).init(STAGED), "optimizer_state=opt.init"),
        (lambda: trained(make(ALONE, optax.sgd(0.1)), 1, variables=STAGED), "which is the loss"),
    ],
)
def test_what_cannot_work_is_told(call: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        call()
