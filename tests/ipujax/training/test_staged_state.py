"""Untrained state of models that are pipelines: carried, averaged, given to predictions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

from ipujax.training import Inference, Pipeline, StageOutput, Training, TrainState
from tests.ipujax.feeding import configure
from tests.ipujax.training.regression import STAGED, batches, close, first_stage, last_stage


def counting(variables: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
    after = {**state, "count": state["count"] + 1, "mean": x.mean()}
    return StageOutput(first_stage(variables, x, y), after)


def summing(variables: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
    loss = last_stage(variables, x, y)
    return StageOutput(loss, {**state, "total": state["total"] + loss})


STAGES = Pipeline([counting, summing])
INITIAL = {"count": np.int32(0), "mean": np.float32(0), "total": np.float32(0)}


def trained(state: Any = INITIAL, data: Any = batches, steps: int | None = 3) -> Any:
    training = Training(STAGES, optax.sgd(0.01), accumulation=4, steps_per_loop=2)
    return training.fit(training.init(STAGED, state), data, steps)


@pytest.mark.exhaustive
def test_it_goes_along_from_loop_to_loop() -> None:
    configure(2)
    state = trained()
    alone = Training(Pipeline([first_stage, last_stage]), optax.sgd(0.01), accumulation=4)
    close(state.variables, alone.fit(alone.init(STAGED), batches, 3).variables)
    rows = list(batches(12))
    assert int(state.state["count"]) == 12
    close(state.state["mean"], rows[-1][0].mean())
    again = trained(state.state)
    assert int(again.state["count"]) == 24


@pytest.mark.exhaustive
def test_it_is_averaged_over_replicas() -> None:
    configure(4)
    state = trained()
    last = [x.mean() for x, _ in list(batches(24))[-2:]]
    close(state.state["mean"], np.mean(last))
    assert int(state.state["count"]) == 12


@pytest.mark.exhaustive
def test_it_is_kept_where_the_data_end() -> None:
    configure(2)
    state = trained(data=lambda: batches(13), steps=None)
    assert state.step == 3
    assert int(state.state["count"]) == 12


def test_a_prediction_goes_on_with_it() -> None:
    def stamped(variables: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        return StageOutput((x, y, state["count"]), {**state, "count": state["count"] + 1})

    configure(2)
    stages = Pipeline([stamped, lambda variables, state, x, y, count: count])
    begin = TrainState(STAGED, state={"count": np.int32(5)})
    loops = Inference(stages, accumulation=4, steps_per_loop=1).predict(begin, batches, 2)
    np.testing.assert_array_equal(np.concatenate([x for (x,) in loops]), np.arange(5, 13))


def test_the_options_of_a_pipeline_have_none() -> None:
    with pytest.raises(ValueError, match="state, which Training and Inference give themselves"):
        Pipeline([counting, summing], {"state": INITIAL})
