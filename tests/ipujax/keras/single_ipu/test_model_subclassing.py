"""Subclassed models in the scope: the original's `model_subclassing_test.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, on_ipus, twins, values

ONES = np.ones((8, 4), np.float32)
RUN: dict[str, Any] = {"batch_size": 4, "shuffle": False, "verbose": 0}


class Mlp(keras.Model):
    """Dense, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(3, activation="relu")
        self.norm = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.3)
        self.out = keras.layers.Dense(2)

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.drop(self.norm(self.hidden(inputs)), training=training)
        return self.out(hidden)


@pytest.mark.exhaustive
def test_custom_build_with_fit() -> None:
    class Built(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(3, activation="relu")

        def build(self, input_shape: Any) -> None:
            self.second = keras.layers.Dense(1)
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            return self.second(self.first(inputs))

    def program() -> Any:
        model = Built()
        model.compile("sgd", "mse")
        history = model.fit(ONES, ONES[:, :1], epochs=2, **RUN).history
        return history, values(model.trainable_variables)

    ours, keras_own = twins(program)
    assert len(ours[1]) == 4
    alike(ours, keras_own)


@pytest.mark.exhaustive
def test_dataset_dict_with_fit() -> None:
    class Named(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = keras.layers.Dense(1), keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.a(inputs["a"]) + self.b(inputs["b"])

    def program() -> Any:
        model = Named()
        model.compile("sgd", "mse")
        data = {"a": ONES, "b": ONES[:, :3]}
        return model.fit(data, ONES[:, :1], epochs=2, **RUN).history, values(model.weights)

    alike(*twins(program))


@pytest.mark.exhaustive
def test_embed_dtype_with_subclass_build() -> None:
    """Integers stay integers on their way to the model."""

    class Embed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embed = keras.layers.Embedding(10, 4)
            self.seen: Any = None

        def call(self, inputs: Any) -> Any:
            self.seen = keras.backend.standardize_dtype(inputs.dtype)
            return keras.ops.mean(self.embed(inputs), axis=1)

    def program() -> Any:
        model = Embed()
        model.compile("sgd", "mse")
        indices = np.arange(16).reshape(8, 2) % 10
        history = model.fit(indices.astype(np.int32), ONES, **RUN).history
        assert model.seen == "int32"
        return history, values(model.weights)

    alike(*twins(program))


@pytest.mark.exhaustive
def test_single_time_step_rnn() -> None:
    class Recurrent(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = keras.layers.LSTM(3)

        def call(self, inputs: Any) -> Any:
            return self.lstm(inputs)

    def program() -> Any:
        model = Recurrent()
        model.compile("sgd", "mse")
        return model.fit(ONES[:, None], ONES[:, :3], **RUN).history, values(model.weights)

    alike(*twins(program))


@pytest.mark.exhaustive
def test_single_io_subclass() -> None:
    def program() -> Any:
        model = Mlp()
        model.compile("adam", "mse", metrics=["mae"])
        history = model.fit(ONES, ONES[:, :2], epochs=2, **RUN).history
        return history, model.predict(ONES, verbose=0), values(model.weights)

    alike(*twins(program))


@pytest.mark.exhaustive
def test_subclass_save_model(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    with on_ipus():
        model = Mlp()
        model.compile("adam", "mse")
        model.fit(ONES, ONES[:, :2], **RUN)
        model.save_weights(path)
        other = Mlp()
        other.compile("adam", "mse")
        other.fit(ONES, ONES[:, :2], **RUN)
        other.load_weights(path)
        alike(values(other.trainable_weights), values(model.trainable_weights), rtol=0, atol=0)
        alike(other.predict(ONES, verbose=0), model.predict(ONES, verbose=0), rtol=0, atol=0)


@pytest.mark.exhaustive
def test_multi_io_subclass() -> None:
    class Two(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Mlp(), Mlp()

        def call(self, inputs: Any, training: bool = False) -> Any:
            one, two = inputs
            return self.first(one, training=training), self.second(two, training=training)

    def program() -> Any:
        model = Two()
        model.compile("sgd", ["mse", "mae"])
        history = model.fit([ONES, 2 * ONES], [ONES[:, :2], ONES[:, 2:]], **RUN).history
        return history, model.predict([ONES, ONES], verbose=0), values(model.weights)

    alike(*twins(program))


def test_summary() -> None:
    lines: list[str] = []
    with on_ipus():
        model = Mlp()
        model.compile("sgd", "mse")
        model.fit(ONES, ONES[:, :2], **RUN)
        model.summary(print_fn=lines.append)
    # 4 * 3 + 3, 2 * 3 of the batch norm, and 3 * 2 + 2
    assert "Trainable params: 29" in "\n".join(lines)


def test_extra_variable_and_weight_in_model() -> None:
    """Variables of the model itself train, or stay, as those of its layers."""

    class Extra(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.added = self.add_weight(name="added", shape=(4,), initializer="ones")
            self.fixed = self.add_weight(
                name="fixed", shape=(4,), initializer="ones", trainable=False
            )

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs + self.added * self.fixed)

    def program() -> Any:
        model = Extra()
        model.compile("sgd", "mse")
        model.fit(ONES, ONES[:, :1], **RUN)
        return values([model.added, model.fixed]), values(model.weights)

    ours, keras_own = twins(program)
    assert np.all(ours[0][0] != 1)
    np.testing.assert_array_equal(ours[0][1], np.ones(4))
    alike(ours, keras_own)


def test_update_in_model() -> None:
    """What `call` assigns to variables is kept, step after step."""

    class Counting(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.doubled = self.add_weight(
                name="doubled", shape=(), initializer="ones", trainable=False
            )

        def call(self, inputs: Any) -> Any:
            self.doubled.assign(self.doubled * 2)
            return self.dense(inputs)

    with on_ipus():
        model = Counting()
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(ONES[:, :1], ONES[:, :1], batch_size=2, verbose=0)
        # Building calls the model once, whose assignment Keras takes back.
        assert float(model.doubled.value) == 2.0**4


def test_training_no_default() -> None:
    class Told(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.told: list[Any] = []

        def call(self, inputs: Any, training: Any) -> Any:
            self.told.append(training)
            return self.dense(inputs)

    with on_ipus():
        model = Told()
        model.compile("sgd", "mse")
        model.fit(ONES, ONES[:, :1], **RUN)
        assert model.told[-1] is True
        model.predict(ONES, verbose=0)
        assert model.told[-1] is False


def test_attribute_conflict_error() -> None:
    class Property(keras.Model):
        @property
        def read_only(self) -> float:
            return 1.0

    with on_ipus(), pytest.raises(AttributeError, match="read_only"):
        Property().read_only = 2.0
