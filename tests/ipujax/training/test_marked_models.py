"""Pipelines made of one function whose marks say where its stages are."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

from ipujax.errors import PipelineError
from ipujax.training import Inference, Pipeline, StageOutput, Training
from lowering import marks
from tests.ipujax.feeding import configure
from tests.ipujax.training.regression import (
    STAGED,
    batches,
    close,
    first_stage,
    last_stage,
    plain,
    staged_loss,
    trained,
)


def marked(variables: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The model in two stages as one function."""
    with jax.named_scope(marks.write_mark(marks.STAGE, "0")):
        middle = first_stage(variables, x, y)
    with jax.named_scope(marks.write_mark(marks.STAGE, "1")):
        return last_stage(variables, *middle)


def test_a_function_with_marks_is_cut_and_trained() -> None:
    configure(2)
    model = Pipeline(marked, {"device_mapping": [1, 0]})
    training = Training(model, optax.sgd(0.1), accumulation=4)
    state, _ = trained(training, 3, variables=STAGED)
    close(state.variables, plain(optax.sgd(0.1), 3, 4, loss=staged_loss, variables=STAGED)[0])
    assert training.executable is not None
    text = training.executable.lowered.as_text()
    assert "task forward 0\n        stream-in ipu 1" in text


def test_a_function_with_marks_predicts() -> None:
    configure(2)
    training = Training(Pipeline(marked), optax.sgd(0.1))
    (found,) = Inference(Pipeline(marked), accumulation=4).predict(
        training.init(STAGED), batches, 2
    )
    close(found, np.array([staged_loss(STAGED, x, y) for x, y in batches(8)]))


def with_state(variables: Any, state: Any, x: jax.Array, y: jax.Array) -> StageOutput:
    """The model, the mean of its last input, and the sum of its losses."""
    loss = marked(variables, x, y)
    return StageOutput(loss, {"mean": x.mean(), "total": state["total"] + loss})


STATE = {"mean": np.float32(0), "total": np.float32(0)}


@pytest.mark.exhaustive
def test_a_function_with_marks_has_a_state() -> None:
    configure(2)
    training = Training(Pipeline(with_state), optax.sgd(0.0), accumulation=4)
    state = training.fit(training.init(STAGED, STATE), batches, 2)
    losses = [staged_loss(STAGED, x, y) for x, y in batches(8)]
    close(state.state, {"mean": list(batches(8))[-1][0].mean(), "total": np.sum(losses)})


@pytest.mark.exhaustive
def test_one_element_goes_through_a_function_with_marks_and_a_state() -> None:
    ((x, y),) = batches(1)
    (loss,) = Pipeline(with_state).forward(STAGED, STATE, x, y)
    close(loss, staged_loss(STAGED, x, y))


def test_how_many_stages_there_must_be() -> None:
    configure(2)
    training = Training(Pipeline(marked, count=1), optax.sgd(0.1), accumulation=4)
    with pytest.raises(PipelineError, match="in stage 1, and the last stage is 0"):
        training.fit(training.init(STAGED), batches, 2)
