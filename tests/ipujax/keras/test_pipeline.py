"""Functional models as pipelines: the original's `pipeline_test.py`."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from ipujax.keras import PipelineStage
from tests.ipujax.keras.twins import Counter, alike, keras, on_ipus, values

X = np.ones((96, 32), np.float32)
Y = np.full((96, 2), 0.2, np.float32)
RUN: dict[str, Any] = {"batch_size": 1, "verbose": 0}


def dense(units: int, **more: Any) -> Any:
    return keras.layers.Dense(
        units, activation="relu", kernel_initializer=keras.initializers.Constant(0.02), **more
    )


def simple(stages: list[int] | None = None) -> Any:
    """Two dense layers of fixed weights, on stages."""
    outputs: Any = keras.Input((32,))
    inputs = outputs
    for number, units in enumerate((16, 2)):
        with PipelineStage(stages[number]) if stages else contextlib.nullcontext():
            outputs = dense(units)(outputs)
    return keras.Model(inputs, outputs)


def pipelined(count: int = 8, steps: int = 16, optimizer: Any = "sgd", **more: Any) -> Any:
    """The same as a pipeline that accumulates so many batches."""
    model = simple([0, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=count, **more)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=steps)
    return model


def keras_alone(optimizer: Any = "sgd", epochs: int = 2, **fit: Any) -> Any:
    """What Keras makes of batches as large as all that a weight update accumulates."""
    model = simple()
    model.compile(optimizer, "mse", metrics=["mae"])
    history = model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, **fit)
    return history.history, values(model.weights)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["mean", "running_mean"])
def test_fit_cpu_match(method: str) -> None:
    with on_ipus(2):
        model = pipelined(gradient_accumulation_reduction_method=method)
        history = model.fit(X, Y, epochs=2, shuffle=False, **RUN).history
        ours = history, values(model.weights)
    alike(ours, keras_alone())


@pytest.mark.exhaustive
def test_fit_cpu_match_of_sums() -> None:
    """The sum of eight gradients is their mean at eight times the learning rate."""
    with on_ipus(2):
        model = pipelined(
            optimizer=keras.optimizers.SGD(0.01 / 8), gradient_accumulation_reduction_method="sum"
        )
        model.fit(X, Y, epochs=2, shuffle=False, **RUN)
        ours = values(model.weights)
    alike(ours, keras_alone()[1])


@pytest.mark.exhaustive
def test_fit_cpu_match_with_class_weights() -> None:
    classes = np.arange(96) % 3
    weights = {0: 0.0, 1: 0.1, 2: 0.9}

    def classifier(stages: bool) -> Any:
        outputs: Any = keras.Input((32,))
        inputs = outputs
        for number, units in enumerate((8, 3)):
            with PipelineStage(number) if stages else contextlib.nullcontext():
                outputs = keras.layers.Dense(
                    units, kernel_initializer=keras.initializers.Orthogonal(seed=number)
                )(outputs)
        return keras.Model(inputs, outputs)

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with on_ipus(2):
        ours = classifier(stages=True)
        ours.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        ours.compile("sgd", loss, steps_per_execution=16)
        ours.fit(X, classes, epochs=2, shuffle=False, class_weight=weights, **RUN)
    alone = classifier(stages=False)
    alone.compile("sgd", loss)
    alone.fit(X, classes, batch_size=8, epochs=2, shuffle=False, class_weight=weights, verbose=0)
    alike(values(ours.weights), values(alone.weights))


def test_fit_history_steps_per_run() -> None:
    """Hooks of batches are called once per execution."""
    counter = Counter()
    with on_ipus(2):
        pipelined().fit(X, Y, callbacks=[counter], **RUN)
    assert counter.counts["on_train_batch_end"] == 96 // 16


def test_fit_twice() -> None:
    """The second run trains on, by the program of the first."""
    with on_ipus(2):
        model = pipelined()
        losses, weights, programs = [], [], []
        for _ in range(3):
            losses += model.fit(X[:16], Y[:16], **RUN).history["loss"]
            weights.append(values(model.weights))
            programs.append(model.train_function.executable)
    assert losses == sorted(losses, reverse=True)
    assert all(np.any(one != two) for one, two in zip(weights[0], weights[1], strict=True))
    assert programs[0] is programs[1] is programs[2]


def test_fit_multiple_outputs() -> None:
    """Outputs of an early stage and of the last, each with a loss."""

    def model_of(stages: bool) -> Any:
        inputs = keras.Input((32,))
        outputs = []
        for number in range(2):
            with PipelineStage(number) if stages else contextlib.nullcontext():
                outputs.append(dense(2, name=f"output{number}")(inputs))
        return keras.Model(inputs, outputs)

    with on_ipus(2):
        ours = model_of(stages=True)
        ours.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        ours.compile("sgd", ["mse", "mse"], steps_per_execution=4)
        data: tuple[Any, Any] = X[:32], [Y[:32], Y[:32]]
        history = ours.fit(*data, batch_size=2, epochs=2, shuffle=False, verbose=0).history
    alone = model_of(stages=False)
    alone.compile("sgd", ["mse", "mse"])
    expected = alone.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    assert set(history) == {"loss", "output0_loss", "output1_loss"}
    alike(history, expected)
    alike(values(ours.weights), values(alone.weights))


SCHEDULES = {
    "decay": lambda: keras.optimizers.schedules.InverseTimeDecay(0.01, 1, 0.1),
    "exponential": lambda: keras.optimizers.schedules.ExponentialDecay(0.01, 4, 0.1, True),
    "piecewise": lambda: keras.optimizers.schedules.PiecewiseConstantDecay(
        [8, 16], [0.01, 0.005, 0.001]
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fit_with_learning_rate_schedules(schedule: str) -> None:
    """Schedules count weight updates."""
    with on_ipus(2):
        model = pipelined(optimizer=keras.optimizers.SGD(SCHEDULES[schedule]()))
        model.fit(X, Y, epochs=2, shuffle=False, **RUN)
        assert int(model.optimizer.iterations.value) == 2 * 96 // 8
        ours = values(model.weights)
    alike(ours, keras_alone(keras.optimizers.SGD(SCHEDULES[schedule]()))[1])


def test_fit_with_metrics() -> None:
    with on_ipus(2):
        history = pipelined().fit(X[:16], Y[:16], epochs=2, **RUN).history
    assert set(history) == {"loss", "mae"}
    assert {type(value) for epochs in history.values() for value in epochs} == {float}


def test_fit_and_evaluate_accumulate_outfeed() -> None:
    """Accumulating what is sent changes nothing that Keras sees."""
    results = []
    with on_ipus(2):
        for accumulate in (None, True):
            model, counter = pipelined(accumulate_outfeed=accumulate), Counter()
            history = model.fit(
                X[:32], Y[:32], epochs=2, shuffle=False, callbacks=[counter], **RUN
            ).history
            evaluated = model.evaluate(X[:32], Y[:32], **RUN)
            results.append((history, evaluated, counter.counts))
    alike(results[0], results[1])


@pytest.mark.parametrize("steps", [2, 32])
def test_eval_and_predict_cpu_match(steps: int) -> None:
    """Neither needs to know how many batches training accumulates."""
    alone = simple()
    alone.compile("sgd", "mse")
    with on_ipus(2):
        model = simple([0, 1])
        model.compile("sgd", "mse", steps_per_execution=steps)
        evaluated = model.evaluate(X, Y, **RUN)
        predicted = model.predict(X, **RUN)
    alike(evaluated, alone.evaluate(X, Y, **RUN))
    alike(predicted, alone.predict(X, **RUN))
