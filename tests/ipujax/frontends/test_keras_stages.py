"""Models of Keras whose layers have pipeline stages, cut at these."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import PipelineError
from ipujax.frontends import Part, from_keras
from ipujax.keras import set_pipeline_stage_assignment
from ipujax.training import Pipeline, StageOutput, StepOutput, Training
from tests.ipujax.feeding import configure
from tests.ipujax.pipelining import close, run_pipeline

keras = pytest.importorskip("keras")
layers: Any = keras.layers

X = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)


def batches() -> Any:
    return (X + i / 4 for i in range(8))


def functional() -> Any:
    """A nested model in stage 0, a skip connection over stage 1, dropout, batch norm."""
    keras.utils.set_random_seed(1)
    inside = [layers.Dense(3, name="a"), layers.Dropout(0.25, name="drop")]
    encoder = keras.Sequential(inside, name="encoder")
    start = keras.Input((3,))
    with ipu.keras.PipelineStage(0):
        early = encoder(start)
    with ipu.keras.PipelineStage(1):
        x = layers.Dense(3, "tanh", name="b")(early)
        x = layers.BatchNormalization(name="norm")(x)
    with ipu.keras.PipelineStage(2):
        x = layers.Add(name="add")([x, early])
        return keras.Model(start, layers.Dense(1, kernel_regularizer="l2", name="c")(x))


STAGED = (
    Part("encoder/a", 0),
    Part("encoder/drop", 0),
    Part("b", 1),
    Part("norm", 1),
    Part("add", 2),
    Part("c", 2),
)


def test_parts_have_the_stages_of_their_scopes() -> None:
    assert from_keras(functional()).parts == STAGED


@pytest.mark.exhaustive
def test_parts_have_the_stages_that_were_set() -> None:
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(3), layers.Flatten(), layers.Dense(1)]
    )
    set_pipeline_stage_assignment(model, [0, 1, 1])
    found = from_keras(model)
    assert [part.stage for part in found.parts] == [0, 1, 1]
    configure(2)
    variables, _ = found.split(found.variables)
    _, (outputs,) = run_pipeline(found.stages(X), 8, variables=variables, data=batches)
    close(outputs, np.stack([model(x) for x in batches()]))


@pytest.mark.exhaustive
def test_a_pipeline_trains_as_the_model_on_one_ipu_does() -> None:
    found = from_keras(functional(), training=True)

    def whole(trained: Any, state: Any, x: Any) -> StepOutput:
        outputs, after = found.apply({**trained, **state}, x)
        penalty = 0.01 * jnp.square(trained["b/kernel"]).sum()
        loss = jnp.square(outputs - x.sum(1, keepdims=True)).mean() + penalty
        return StepOutput(loss, state=found.split(after)[1])

    def in_stages(*args: Any) -> StageOutput:
        output = whole(*args)
        return StageOutput(output.loss, output.state)

    final: list[Any] = []
    for ipus, model in ((1, whole), (4, Pipeline(in_stages))):
        configure(ipus)
        training_of = Training(model, optax.sgd(0.05), accumulation=6)
        start = training_of.init(*found.split(found.variables))
        final.append(training_of.fit(start, lambda: (X + i / 4 for i in range(12)), 2))
    jax.tree.map(close, final[0].variables, final[1].variables)
    jax.tree.map(close, final[0].state, final[1].state)


def test_stages_that_are_not_in_order() -> None:
    class Backwards(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = layers.Dense(3, name="first"), layers.Dense(3, name="second")

        def call(self, x: Any) -> Any:
            with ipu.keras.PipelineStage(1):
                x = self.first(x)
            with ipu.keras.PipelineStage(0):
                return self.second(x)

    model = Backwards()
    model(X)
    with pytest.raises(PipelineError, match=r"`second` is in stage 0, .* `first` computes in"):
        from_keras(model).stages(X)
