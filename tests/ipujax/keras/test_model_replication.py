"""Models on devices with more IPUs than they need.

The original's `model_replication_test.py`, `model_replication_mnist_test.py`,
`sequential_replication_test.py`, `pipeline_model_replication_test.py`,
`pipeline_sequential_replication_test.py` and `prng_stability_models_test.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipujax.keras import PipelineStage
from tests.ipujax.keras.twins import Kind, alike, keras, model_of, on_ipus, values

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

RANDOM = np.random.default_rng(8)
X = RANDOM.random((96, 32), np.float32)
Y = RANDOM.random((96, 2), np.float32)


def two_layers(kind: Kind = "functional", pipelined: bool = False, **compiled: Any) -> Any:
    """Dense layers of fixed weights, in two stages or one."""
    layers = [
        keras.layers.Dense(units, kernel_initializer=keras.initializers.Orthogonal(seed=units))
        for units in (4, 2)
    ]
    if kind == "functional" and pipelined:
        inputs = outputs = keras.Input((32,))
        for stage, layer in enumerate(layers):
            with PipelineStage(stage):
                outputs = layer(outputs)
        model = keras.Model(inputs, outputs)
    else:
        model = model_of(kind, layers, (32,))
        if pipelined:
            model.set_pipeline_stage_assignment([0, 1])
    model.compile("sgd", "mse", metrics=["mae"], **compiled)
    return model


@pytest.mark.parametrize("kind", ["functional", "sequential"])
@pytest.mark.parametrize(
    ("pipelined", "ipus", "steps"), [(False, 2, 24), (False, 4, 4), (True, 4, 12)]
)
def test_predict_with_numpy_data(kind: Kind, pipelined: bool, ipus: int, steps: int) -> None:
    """The examples' order is that of the data."""
    expected = two_layers(kind).predict(X, verbose=0)
    with on_ipus(ipus):
        model = two_layers(kind, pipelined, steps_per_execution=steps)
        predicted = model.predict(X, batch_size=2, verbose=0)
    alike(predicted, expected)


def test_predict_with_fewer_steps_than_data() -> None:
    expected = two_layers().predict(X[:4], verbose=0)
    with on_ipus(2):
        model = two_layers(steps_per_execution=2)
        alike(model.predict(X, batch_size=2, steps=2, verbose=0), expected)


@pytest.mark.parametrize(("pipelined", "ipus"), [(False, 2), (True, 2), (True, 4)])
def test_predict_of_several_executions_of_which_the_last_is_short(
    pipelined: bool, ipus: int
) -> None:
    expected = two_layers().predict(X[:60], verbose=0)
    with on_ipus(ipus):
        model = two_layers(pipelined=pipelined, steps_per_execution=4)
        alike(model.predict(X[:60], batch_size=2, verbose=0), expected)


@pytest.mark.parametrize("examples", [9, 16, 17])
def test_predict_of_a_pipeline_whose_last_batch_is_incomplete(examples: int) -> None:
    expected = two_layers().predict(X[:examples], verbose=0)
    with on_ipus(2):
        model = two_layers(pipelined=True, steps_per_execution=4)
        alike(model.predict(X[:examples], batch_size=2, verbose=0), expected)


def test_predict_multiple_output_different_shapes() -> None:
    def build() -> Any:
        inputs = [keras.Input((32,)) for _ in range(3)]
        dense = keras.layers.Dense
        first, second = (dense(4, kernel_initializer="ones")(each) for each in inputs[:2])
        joined = keras.layers.Concatenate()([first, second, inputs[2]])
        ends = [dense(units, kernel_initializer="ones")(joined) for units in (1, 2, 2)]
        return keras.Model(inputs, (ends[0], (ends[1], ends[2])))

    data = [X[:64], 2 * X[:64], 3 * X[:64]]
    expected = build().predict(data, verbose=0)
    with on_ipus(2):
        model = build()
        model.compile(steps_per_execution=2)
        alike(model.predict(data, batch_size=4, verbose=0), expected)


@pytest.mark.parametrize("ipus", [2, 4])
def test_metrics_are_those_of_all_replicas(ipus: int) -> None:
    """The original gives one replica's, or a reduction of all; ours are those of the data."""
    expected = two_layers().evaluate(X, Y, return_dict=True, verbose=0)
    with on_ipus(ipus):
        model = two_layers(steps_per_execution=8)
        result = model.evaluate(X, Y, batch_size=2, return_dict=True, verbose=0)
    alike(result, expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["functional", "sequential"])
@pytest.mark.parametrize(("pipelined", "ipus"), [(False, 2), (False, 4), (True, 4)])
def test_fit(kind: Kind, pipelined: bool, ipus: int) -> None:
    """Replicas train as one model of batches as large as all of theirs."""
    replicas = ipus // 2 if pipelined else ipus
    accumulated = 4 if pipelined else 1
    alone = two_layers(kind)
    history = alone.fit(
        X, Y, batch_size=2 * replicas * accumulated, epochs=2, shuffle=False, verbose=0
    ).history
    with on_ipus(ipus):
        model = two_layers(kind, pipelined, steps_per_execution=2 * replicas * accumulated)
        if pipelined:
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=accumulated)
        ours = model.fit(X, Y, batch_size=2, epochs=2, shuffle=False, verbose=0).history
    alike((ours, values(model.weights)), (history, values(alone.weights)))


@pytest.mark.parametrize("whole", [True, False])
def test_compare_predictions_of_a_model_trained_elsewhere(tmp_path: Path, whole: bool) -> None:
    """What Keras alone has trained and saved predicts the same on replicas."""
    alone = two_layers("sequential")
    alone.fit(X, Y, batch_size=32, epochs=2, verbose=0)
    expected = alone.predict(X, verbose=0)
    path = tmp_path / ("model.keras" if whole else "model.weights.h5")
    (alone.save if whole else alone.save_weights)(path)
    with on_ipus(2):
        if whole:
            model = keras.models.load_model(path)
        else:
            model = two_layers("sequential")
            model.optimizer.build(model.trainable_variables)
            model.load_weights(path)
        model.compile(steps_per_execution=4)
        alike(model.predict(X, batch_size=2, steps=48, verbose=0), expected)


@pytest.mark.parametrize("batch", [2, 3])
def test_datasets_that_replicas_cannot_share(batch: int) -> None:
    """The original drops what is left over; it is an error that names the numbers."""
    with on_ipus(4):
        model = two_layers(steps_per_execution=4)
        with pytest.raises(ValueError, match=r"4 replicas"):
            model.fit(X[: batch * 3 + 1], Y[: batch * 3 + 1], batch_size=batch, verbose=0)
        with pytest.raises(ValueError, match=r"4 replicas"):
            model.predict(X[: batch * 3], batch_size=batch, verbose=0)
        assert len(model.get_weights()) == 4


def test_float16_on_replicas() -> None:
    """Replicas stay alike in half precision: there is one set of weights, as with one replica."""

    def weights(batch: int, steps: int) -> Any:
        model = keras.Sequential(
            [
                keras.Input((32,)),
                keras.layers.Dense(4, dtype="float16", kernel_initializer="ones"),
                keras.layers.Dense(2, dtype="float16", kernel_initializer="ones"),
            ]
        )
        model.compile(keras.optimizers.SGD(1e-4), "mse", steps_per_execution=steps)
        half = X.astype(np.float16) / 32, Y.astype(np.float16)
        model.fit(*half, batch_size=batch, shuffle=False, verbose=0)
        return values(model.weights)

    with on_ipus(4):
        ours = weights(batch=2, steps=8)
    assert all(weight.dtype == np.float16 for weight in ours)
    alike(ours, weights(batch=8, steps=2), rtol=2e-3)
