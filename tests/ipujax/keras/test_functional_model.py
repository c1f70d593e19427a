"""Functional and Sequential models: the original's `functional_model_test.py`.

With its `sequential_test.py`, `mixed_precision_test.py`, `synthetic_data_test.py` and the checks of
`extensions_test.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import Kind, alike, keras, model_of, on_ipus, twins, values

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

X = np.random.default_rng(9).random((24, 8), np.float32)
Y = np.full((24, 2), 0.2, np.float32)
RUN: dict[str, Any] = {"batch_size": 4, "verbose": 0}
BOTH: list[Kind] = ["functional", "sequential"]


def simple(kind: Kind = "functional", optimizer: Any = "sgd", **compiled: Any) -> Any:
    layers = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)]
    model = model_of(kind, layers, (8,))
    model.compile(optimizer, "mse", **compiled)
    return model


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("epochs", [1, 2])
def test_results_cpu_match(kind: Kind, epochs: int) -> None:
    def program() -> Any:
        model = simple(kind, metrics=["mae"])
        history = model.fit(X, Y, epochs=epochs, **RUN).history
        return history, values(model.weights)

    ours, keras_own = twins(program)
    assert {name: len(each) for name, each in ours[0].items()} == {"loss": epochs, "mae": epochs}
    alike(ours, keras_own)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("data", [X, keras.ops.convert_to_tensor(X), X.tolist()], ids=type)
def test_data_of_arrays_and_tensors(kind: Kind, data: Any) -> None:
    x = np.asarray(X)
    expected = twins(lambda: simple(kind).predict(x, verbose=0))[1]
    alike(twins(lambda: simple(kind).predict(np.asarray(data), verbose=0))[0], expected)
    if not isinstance(data, list):
        alike(twins(lambda: simple(kind).predict(data, verbose=0))[0], expected)


@pytest.mark.parametrize("batch", [1, 2, 24])
def test_eval_and_predict_cpu_match(batch: int) -> None:
    def program() -> Any:
        model = simple(steps_per_execution=8)
        evaluated = model.evaluate(X, Y, batch_size=batch, verbose=0)
        assert type(evaluated) is float
        return evaluated, model.predict(X, batch_size=batch, verbose=0)

    alike(*twins(program))


def endless() -> Iterator[Any]:
    """Batches without an end."""
    while True:
        yield X[:4], Y[:4]


@pytest.mark.parametrize("kind", BOTH)
def test_fit_twice(kind: Kind) -> None:
    """What is fitted again goes on, by the program that is there, also with other data."""
    with on_ipus():
        model = simple(kind)
        losses, programs = [], []
        for data in (X[:4], X[:4], X[4:8]):
            losses += model.fit(data, Y[:4], **RUN).history["loss"]
            programs.append(model.train_function.executable)
        weights = values(model.weights)
        model.fit(endless(), steps_per_epoch=1, shuffle=False, verbose=0)
    assert losses[1] < losses[0]
    assert programs[0] is programs[1] is programs[2]
    assert any(np.any(one != two) for one, two in zip(weights, values(model.weights), strict=True))


def test_fit_history_steps_per_epoch_two_epochs() -> None:
    with on_ipus():
        history = (
            simple().fit(endless(), steps_per_epoch=12, epochs=2, shuffle=False, verbose=0).history
        )
    assert [type(loss) for loss in history["loss"]] == [float, float]


SCHEDULES = {
    "decay": lambda: keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 0.1),
    "exponential": lambda: keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.1, True),
    "piecewise": lambda: keras.optimizers.schedules.PiecewiseConstantDecay(
        [8, 16], [0.1, 0.05, 0.01]
    ),
}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.sampled(1)
def test_fit_with_learning_rate_schedules(kind: Kind, schedule: str) -> None:
    """The rate changes within an execution, and from one to the next."""

    def program() -> Any:
        optimizer = keras.optimizers.SGD(SCHEDULES[schedule]())
        model = simple(kind, optimizer, steps_per_execution=4)
        model.fit(X, Y, epochs=3, shuffle=False, **RUN)
        return values(model.weights), float(optimizer.learning_rate)

    alike(*twins(program))


def test_call_order() -> None:
    """Evaluation and prediction before training."""

    def program() -> Any:
        model = simple(optimizer="rmsprop")
        return [
            model.evaluate(X, Y, **RUN),
            model.predict(X, **RUN),
            model.fit(X, Y, **RUN).history,
        ]

    alike(*twins(program))


def three_inputs() -> Any:
    """Three inputs, of which one skips a layer, and two outputs."""
    inputs = [keras.Input((8,), name=f"input{number}") for number in range(3)]
    first, second = (keras.layers.Dense(3, activation="relu")(each) for each in inputs[:2])
    joined = keras.layers.Concatenate()([first, second, inputs[2]])
    outputs = [keras.layers.Dense(units, name=f"output{units}")(joined) for units in (1, 2)]
    return keras.Model(inputs, outputs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["lists", "dicts"])
def test_train_multiple_input_multiple_output(form: str) -> None:
    def program() -> Any:
        model = three_inputs()
        names = ["output1", "output2"]
        targets = [Y[:, :1], Y]
        if form == "lists":
            model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]], steps_per_execution=2)
            history = model.fit([X, 2 * X, 3 * X], targets, **RUN).history
        else:
            losses, metrics = dict.fromkeys(names, "mse"), {name: ["mae"] for name in names}
            model.compile("sgd", losses, metrics=metrics)
            inputs = {f"input{number}": (number + 1) * X for number in range(3)}
            history = model.fit(inputs, dict(zip(names, targets, strict=True)), **RUN).history
        return history, values(model.weights)

    ours, keras_own = twins(program)
    assert {"output1_loss", "output2_loss", "output1_mae", "output2_mae"} < set(ours[0])
    alike(ours, keras_own)


def test_predict_numpy_data_two_output_3d() -> None:
    def program() -> Any:
        inputs = keras.Input((8,))
        images = keras.layers.Reshape((2, 2, 3))(keras.layers.Dense(12)(inputs))
        return keras.Model(inputs, [images, images, inputs]).predict(X, batch_size=2, verbose=0)

    alike(*twins(program))


def test_nested_classes() -> None:
    """A subclassed model and a subclassed layer in a functional model."""

    class Inner(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(3, activation="relu")
            self.second = keras.layers.Dense(3, activation="softmax")

        def call(self, inputs: Any) -> Any:
            return self.first(inputs[0]), self.second(inputs[1])

    class Outer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = keras.layers.Dense(1), keras.layers.Dense(3)

        def call(self, inputs: Any) -> Any:
            joined = keras.ops.concatenate(inputs, axis=-1)
            return (self.first(joined),), self.second(joined)

    def program() -> Any:
        inputs = [keras.Input((8,)) for _ in range(3)]
        (first,), second = Outer()([*Inner()(inputs[:2]), inputs[2]])
        model = keras.Model(inputs, [first, second])
        model.compile("sgd", ["mse", "mse"])
        history = model.fit([X, X, X], [Y[:, :1], X[:, :3]], **RUN).history
        return history["loss"], values(model.weights)

    alike(*twins(program))


def test_autocast_of_a_complex_structure() -> None:
    """Float64 in any structure is taken as float32."""

    def program() -> Any:
        model = three_inputs()
        model.compile("sgd", ["mse", "mse"])
        x, y = [X.astype(np.float64)] * 3, [Y[:, :1].astype(np.float64), Y.astype(np.float64)]
        history = model.fit(x, y, **RUN).history
        return history["loss"], model.predict(x, **RUN), model.evaluate(x, y, **RUN)

    alike(*twins(program))


def test_uint8() -> None:
    inputs = keras.Input((1,), dtype="uint8")
    halves = keras.layers.Lambda(lambda x: keras.ops.cast(x, "float16"))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(halves))
    model.compile(steps_per_execution=10)
    with on_ipus():
        predicted = model.predict(np.arange(30, dtype=np.uint8), batch_size=1, verbose=0)
    np.testing.assert_array_equal(predicted.ravel(), np.arange(30))


def test_mixed_precision() -> None:
    """`mixed_float16`, whose loss scale is state of the optimizer."""

    def program() -> Any:
        keras.config.set_dtype_policy("mixed_float16")
        try:
            model = simple(optimizer="adam", steps_per_execution=4)
        finally:
            keras.config.set_dtype_policy("float32")
        assert type(model.optimizer).__name__ == "LossScaleOptimizer"
        history = model.fit(X, Y, epochs=2, **RUN).history
        return history, values(model.weights), values(model.optimizer.variables)

    alike(*twins(program), rtol=1e-3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ipus", [1, 2])
def test_synthetic_data(monkeypatch: pytest.MonkeyPatch, ipus: int) -> None:
    """With no data sent, everything still runs, and results have their forms."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    with on_ipus(ipus):
        model = three_inputs()
        model.compile("sgd", ["mse", "mse"], steps_per_execution=2)
        inputs, targets = [X, X, X], [Y[:, :1], Y]
        assert model.fit(inputs, targets, epochs=2, **RUN).history["loss"] == [0.0, 0.0]
        assert np.shape(model.evaluate(inputs, targets, **RUN)) == (3,)
        shapes = [each.shape for each in model.predict(inputs, **RUN)]
    assert shapes == [(24, 1), (24, 2)]


@pytest.mark.parametrize("kind", ["train", "test", "predict"])
def test_functions_and_steps_may_be_overridden(kind: str) -> None:
    """The original refuses it; what calls the inherited one works as in Keras alone."""
    calls: list[str] = []

    def make(self: Any, force: bool = False) -> Any:
        calls.append("make")
        return getattr(keras.Model, f"make_{kind}_function")(self, force)

    def step(self: Any, *arguments: Any) -> Any:
        calls.append("step")
        return getattr(keras.Model, f"{kind}_step")(self, *arguments)

    overridden = type("Own", (keras.Model,), {f"make_{kind}_function": make, f"{kind}_step": step})
    with on_ipus():
        inputs = keras.Input((8,))
        model: Any = overridden(inputs, keras.layers.Dense(2)(inputs))
        model.compile("sgd", "mse")
        if kind == "train":
            model.fit(X, Y, **RUN)
        elif kind == "test":
            model.evaluate(X, Y, **RUN)
        else:
            model.predict(X, **RUN)
    assert {"make", "step"} == set(calls)
