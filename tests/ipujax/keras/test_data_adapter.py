"""Data of all kinds, as many steps as it gives or as are asked for: `data_adapter_test.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, model_of, on_ipus, twins, values


class Seen(keras.Model):
    """Gives its inputs back, and adds them up as it sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.add_weight(name="total", shape=(), initializer="zeros", trainable=False)
        self.steps = self.add_weight(
            name="steps", shape=(), dtype="int32", initializer="zeros", trainable=False
        )
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs: Any) -> Any:
        self.total.assign(self.total + keras.ops.sum(inputs))
        self.steps.assign(self.steps + 1)
        return inputs * self.scale


def seen(data: Any, steps_per_execution: int = 1, **options: Any) -> tuple[float, int]:
    """The sum of what a model has seen in `fit`, as Keras alone shows it, and in how many steps."""

    def program() -> tuple[float, int]:
        model = Seen()
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
        arguments: Any = data() if callable(data) else data
        model.fit(*arguments, shuffle=False, verbose=0, **options)
        return float(model.total.value), int(model.steps.value)

    ours, keras_own = twins(program)
    assert ours == keras_own
    return ours


def numbers(*of: float) -> Any:
    return np.asarray(of, np.float32).reshape(-1, 1)


def batches(*of: float) -> Any:
    """A generator of batches of one number, made anew for each run."""
    return lambda: [((numbers(number), numbers(number)) for number in of)]


class Sequence(keras.utils.PyDataset):
    """Batches of one number, by position."""

    def __init__(self, *of: float) -> None:
        super().__init__()
        self.of = of

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, index: int) -> Any:
        return numbers(self.of[index]), numbers(self.of[index])


FOUR = numbers(1, 2, 4, 8)


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_numpy(steps_per_execution: int) -> None:
    options = {"batch_size": 1, "epochs": 2, "steps_per_execution": steps_per_execution}
    assert seen((FOUR, FOUR), **options) == (30.0, 8)


def test_numpy_with_steps_per_epoch() -> None:
    assert seen((FOUR, FOUR), batch_size=1, epochs=2, steps_per_epoch=2) == (15.0, 4)


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_numpy_partial_batch(steps_per_execution: int) -> None:
    """The original refuses it; Keras trains on it, and so do we."""
    three = FOUR[:3]
    options = {"batch_size": 2, "epochs": 2, "steps_per_execution": steps_per_execution}
    assert seen((three, three), **options) == (14.0, 4)


def test_partial_batch_gives_the_numbers_of_keras() -> None:
    x = np.random.default_rng(0).random((11, 3), np.float32)

    def program() -> Any:
        model = model_of("sequential", [keras.layers.Dense(2)], (3,))
        model.compile("adam", "mse", metrics=["mae"], steps_per_execution=2)
        history = model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0).history
        evaluated = model.evaluate(x, x[:, :2], batch_size=4, verbose=0)
        predicted = model.predict(x, batch_size=4, verbose=0)
        return history, evaluated, predicted, values(model.weights)

    ours, keras_own = twins(program)
    assert ours[2].shape == (11, 2)
    alike(ours, keras_own)


@pytest.mark.parametrize("steps_per_execution", [1, 2, 3])
def test_generator(steps_per_execution: int) -> None:
    """The original wants a data set of known shapes; Keras takes a generator as it is."""
    options = {"epochs": 2, "steps_per_epoch": 3, "steps_per_execution": steps_per_execution}
    if steps_per_execution == 2:  # Keras completes the last execution of an epoch
        assert seen(batches(*range(8)), **options) == (28.0, 8)
    else:
        assert seen(batches(*range(6)), **options) == (15.0, 6)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_generator_without_steps_per_epoch() -> None:
    assert seen(batches(0, 1, 2)) == (3.0, 3)


def test_sequence() -> None:
    assert seen([Sequence(1, 2, 4)], epochs=2) == (14.0, 6)
    assert seen([Sequence(1, 2, 4, 8)], epochs=2, steps_per_epoch=2)[1] == 4


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_insufficient_data() -> None:
    """`fit` trains on what there is, Keras warns, and the model is as the last batch leaves it."""
    assert seen(batches(1, 2, 4), epochs=1, steps_per_epoch=5) == (7.0, 3)


def test_more_steps_per_execution_than_batches() -> None:
    assert seen((FOUR, FOUR), batch_size=1, steps_per_execution=100) == (15.0, 4)


def test_steps_per_execution_not_divisor() -> None:
    """The original refuses it; Keras ends an epoch with a shorter execution."""
    assert seen((FOUR, FOUR), batch_size=1, steps_per_execution=3) == (15.0, 4)


def test_class_weight_user_errors() -> None:
    inputs = keras.Input((1,))
    model = keras.Model(inputs, [keras.layers.Dense(1)(inputs), keras.layers.Dense(1)(inputs)])
    model.compile("sgd", ["mse", "mse"])
    with on_ipus(), pytest.raises(ValueError, match="class_weight"):
        model.fit(FOUR, [FOUR, FOUR], class_weight={0: 0.5, 1: 1.0}, verbose=0)


def test_single_x_input_no_tuple_wrapping() -> None:
    """A model gets its one input as it is, from arrays and from a generator."""
    kinds: list[Any] = []

    class Kinds(keras.Model):
        def call(self, inputs: Any) -> Any:
            kinds.append(type(inputs))
            return inputs

    def generator() -> Iterator[Any]:
        yield (FOUR,)
        yield (FOUR,)

    with on_ipus():
        model = Kinds()
        model.predict(FOUR, batch_size=2, verbose=0)
        model.predict(generator(), steps=2, verbose=0)
    assert not any(issubclass(kind, (tuple, list)) for kind in kinds)


class Named(keras.utils.PyDataset):
    """Batches that are dictionaries."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {"first": FOUR, "second": index * FOUR}


def test_batches_that_are_dictionaries() -> None:
    """Inputs by name, of a model that adds its loss itself."""

    class AddsLoss(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(keras.ops.mean(inputs**2))
            return inputs

    def program() -> Any:
        inputs = {name: keras.Input((1,), name=name) for name in ("first", "second")}
        outputs = keras.layers.Dense(1)(inputs["first"] - 2 * inputs["second"])
        model = keras.Model(inputs, AddsLoss()(outputs))
        model.compile(keras.optimizers.SGD(1e-3), steps_per_execution=2)
        history = model.fit(Named(), epochs=2, shuffle=False, verbose=0).history
        return history, values(model.weights), model.predict(Named(), verbose=0)

    alike(*twins(program))


def test_ragged_data() -> None:
    """Rows of several lengths are an error, and the model keeps its weights."""
    model = model_of("sequential", [keras.layers.Dense(1)], (2,))
    model.compile("sgd", "mse")
    ragged = np.array([[1.0, 2.0], [3.0]], dtype=object)
    with on_ipus(), pytest.raises((ValueError, TypeError)):
        model.fit(ragged, np.zeros((2, 1)), verbose=0)
    assert len(model.get_weights()) == 2
