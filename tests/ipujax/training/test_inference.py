"""Evaluation and prediction: sums over steps and replicas, and results in order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ipujax.errors import TrainingError
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.training import Inference, Pipeline, Training, TrainState
from tests.ipujax.feeding import configure
from tests.ipujax.training.regression import (
    STAGED,
    Watch,
    batches,
    close,
    first_stage,
    last_stage,
    loss_of,
    replicas,
)

WEIGHTS = np.float32([1.0, 2.0, 3.0])
STATE = TrainState(WEIGHTS)


def totals(weights: jax.Array, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """What sums up to a mean loss, and to a share."""
    return {
        "loss": loss_of(weights, x, y),
        "right": jnp.sum(y > 0),
        "count": jnp.float16(y.size),
    }


def expected(count: int) -> dict[str, Any]:
    """The sums by NumPy."""
    losses = [float(np.mean((x @ WEIGHTS - y) ** 2)) for x, y in batches(count)]
    right = sum(int(np.sum(y > 0)) for _, y in batches(count))
    return {"loss": sum(losses), "right": right, "count": 4 * count}


@pytest.mark.parametrize("count", [1, 2])
def test_evaluation_sums_over_steps_and_replicas(count: int) -> None:
    replicas(count)
    found = Inference(totals, steps_per_loop=3).evaluate(STATE, batches, 8)
    close(found, expected(8 * count))
    assert (found["loss"].dtype, found["right"].dtype) == (np.float64, np.int64)
    assert found["count"].dtype == np.float64  # 4 x 1 000 would not fit a float16's integers


def test_evaluation_ends_with_the_data() -> None:
    evaluation = Inference(totals, steps_per_loop=3)
    close(evaluation.evaluate(STATE, lambda: batches(7)), expected(7))
    close(evaluation.evaluate(STATE, list(batches(2)), 9), expected(2))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_prediction_gives_results_in_order(engine: str) -> None:
    prediction = Inference(lambda weights, x: x @ weights, steps_per_loop=2, engine=engine)
    images = [x for x, _ in batches(5)]
    watch = Watch()
    found = list(prediction.predict(STATE, images, callbacks=[watch]))
    assert [each.shape for each in found] == [(2, 4), (2, 4), (1, 4)]
    close(np.concatenate(found), np.stack(images) @ WEIGHTS)
    assert watch.told[:3] == ["begin", "before", "after 2"]


def test_prediction_of_replicas_has_an_axis_of_them() -> None:
    replicas(2)
    images = [x for x, _ in batches(4)]
    (found,) = Inference(lambda weights, x: x @ weights).predict(STATE, images, 2)
    close(found.reshape(4, 4), np.stack(images) @ WEIGHTS)


def test_a_pipeline_predicts_with_variables_that_were_trained() -> None:
    configure(2)
    stages = Pipeline([first_stage, last_stage])
    training = Training(stages, optax.sgd(0.1), accumulation=4)
    state = training.fit(training.init(STAGED), batches, 2)
    (found,) = Inference(stages, accumulation=4).predict(state, batches, 2)
    variables = jax.tree.map(np.asarray, state.variables)
    losses = [
        np.mean((x * variables["scale"] @ variables["weights"] - y) ** 2) for x, y in batches(8)
    ]
    close(found[0], np.array(losses))


def test_untrained_state_and_inputs_are_given_to_the_model() -> None:
    def model(weights: jax.Array, state: Any, step: jax.Array, x: jax.Array) -> Any:
        return x @ weights + state + step

    prediction = Inference(model, inputs=lambda state: (state.step,))
    state = TrainState(WEIGHTS, state=np.float32(10), step=100)
    images = [x for x, _ in batches(2)]
    (found,) = prediction.predict(state, images, 2)
    close(found, np.stack(images) @ WEIGHTS + 110)


def test_the_same_shapes_predict_with_new_variables_at_once() -> None:
    prediction = Inference(lambda weights, x: x @ weights)
    images = [x for x, _ in batches(2)]
    first = list(prediction.predict(STATE, images, 2))
    second = list(prediction.predict(TrainState(2 * WEIGHTS), images, 2))
    close(2 * first[0], second[0])


def test_there_must_be_something_to_sum() -> None:
    last = Inference(totals, outfeed_mode=IPUOutfeedMode.LAST)
    with pytest.raises(TrainingError, match="the last only"):
        last.evaluate(STATE, batches, 2)
    with pytest.raises(TrainingError, match="no step was made"):
        Inference(totals).evaluate(STATE, batches, 0)


def test_a_loop_that_finds_no_data_sends_nothing() -> None:
    evaluation = Inference(totals, steps_per_loop=2, outfeed_mode=IPUOutfeedMode.LAST)
    data = iter(list(batches(2)))
    first = evaluation.run_single_loop(STATE, data, 2)
    again = evaluation.run_single_loop(first.state, data, 2)
    assert (first.steps, again.steps) == (2, 0)
    assert first.results is not None
    assert again.results is None
