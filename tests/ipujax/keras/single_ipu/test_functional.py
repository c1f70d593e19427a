"""Functional models of many forms: the original's `functional_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import alike, keras, on_ipus, twins, values

RANDOM = np.random.default_rng(17)
X = RANDOM.random((10, 5), np.float32)
ONES = np.ones((10, 10), np.float32)
RUN: dict[str, Any] = {"batch_size": 2, "verbose": 0}


def test_basic_network() -> None:
    def program() -> Any:
        a, b = keras.Input((5,)), keras.Input((5,))
        dense = keras.layers.Dense(4)
        joined = keras.layers.Concatenate()([dense(a), dense(b)])
        model = keras.Model([a, b], [joined, keras.layers.Dense(1)(joined)])
        model.compile("sgd", ["mse", "mse"])
        targets = [np.ones((10, 8), np.float32), np.ones((10, 1), np.float32)]
        history = model.fit([X, 2 * X], targets, **RUN).history
        return history, model.predict([X, X], verbose=0), values(model.weights)

    alike(*twins(program))


def test_recursion() -> None:
    """Models in models, and a model that is called twice."""

    def program() -> Any:
        inputs = keras.Input((5,))
        inner = keras.Model(inputs, keras.layers.Dense(5, activation="tanh")(inputs))
        a, b = keras.Input((5,)), keras.Input((5,))
        outer = keras.Model([a, b], keras.layers.add([inner(inner(a)), inner(b)]))
        c = keras.Input((5,))
        model = keras.Model(c, keras.layers.Dense(1)(outer([c, c])))
        model.compile("sgd", "mse")
        history = model.fit(X, X[:, :1], **RUN).history
        return history, values(model.weights)

    ours, keras_own = twins(program)
    assert len(ours[1]) == 4
    alike(ours, keras_own)


def test_activity_regularization_with_model_composition() -> None:
    inputs = keras.Input((2,))
    dense = keras.layers.Dense(
        2, kernel_initializer="ones", use_bias=False, activity_regularizer=keras.ops.sum
    )
    inner = keras.Model(inputs, dense(inputs))
    outer_inputs = keras.Input((2,))
    model = keras.Model(outer_inputs, inner(outer_inputs))
    model.compile("sgd")
    with on_ipus():
        assert model.evaluate(np.ones((1, 2), np.float32), verbose=0) == pytest.approx(4.0)


def test_layer_sharing_at_heterogenous_depth() -> None:
    def program() -> Any:
        inputs = keras.Input((5,))
        a, b = keras.layers.Dense(5), keras.layers.Dense(5)
        model = keras.Model(inputs, keras.layers.concatenate([a(b(a(b(inputs)))), a(inputs)]))
        predicted = model.predict(X, batch_size=5, verbose=0)
        again = keras.Model.from_config(model.get_config())
        again.set_weights(model.get_weights())
        alike(again.predict(X, batch_size=5, verbose=0), predicted, rtol=0, atol=0)
        return predicted

    alike(*twins(program))


def test_mask_derived_from_keras_layer() -> None:
    def program() -> Any:
        inputs, mask = keras.Input((5, 4)), keras.Input((5,), dtype="bool")
        model = keras.Model([inputs, mask], keras.layers.LSTM(3)(inputs, mask=mask))
        model.compile("sgd", "mse")
        x = np.ones((4, 5, 4), np.float32)
        masks = [np.ones((4, 5), bool), np.zeros((4, 5), bool)]
        return [model.evaluate([x, each], np.ones((4, 3)), verbose=0) for each in masks]

    ours, keras_own = twins(program)
    # A mask that hides everything leaves the state's zeros.
    assert ours[1] == pytest.approx(1.0)
    alike(ours, keras_own)


class MaybeAdd(keras.layers.Layer):
    """Adds what it is given by name."""

    def call(self, first: Any, second: Any = None, more: Any = None) -> Any:
        """Gives the sum."""
        parts = [first, *([] if second is None else [second]), *(more or {}).values()]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def test_call_nested_arg_derived_from_keras_layer() -> None:
    inputs = [keras.Input((10,)) for _ in range(3)]
    outputs = MaybeAdd()(inputs[0], second=inputs[1], more={"a": inputs[2]})
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    with on_ipus():
        history = model.fit([ONES, 2 * ONES, 3 * ONES], 6 * ONES, **RUN).history
    assert history["loss"] == [0.0]


@pytest.mark.parametrize("nested", ["dict", "list", "tuple of dicts"])
def test_nested_inputs_and_outputs_network(nested: str) -> None:
    """`predict` takes and gives the structures that the model was built with."""
    one, two = keras.Input((10,), name="one"), keras.Input((10,), name="two")
    total, product = one + two, one * two
    inputs, outputs, data = {
        "dict": ({"one": one, "two": two}, {"+": total, "*": product}, {"one": ONES, "two": ONES}),
        "list": ([one, two], [total, [product]], [ONES, ONES]),
        "tuple of dicts": ((one, {"two": two}), (total, {"*": product}), (ONES, {"two": ONES})),
    }[nested]
    with on_ipus():
        predicted = keras.Model(inputs, outputs).predict(data, batch_size=5, verbose=0)
    expected = keras.tree.map_structure(lambda x: ONES * (2 if x is total else 1), outputs)
    alike(predicted, expected)


def test_dict_mapping_input() -> None:
    """Names find their inputs, whatever their order."""
    a, b = keras.Input((10,), name="a"), keras.Input((10,), name="b")
    with on_ipus():
        for inputs in ([a, b], [b, a]):
            model = keras.Model(inputs, 2 * a + b)
            predicted = model.predict({"b": ONES, "a": 3 * ONES}, verbose=0)
            np.testing.assert_array_equal(predicted, 7 * ONES)


def test_2d_inputs_squeezed_to_1d() -> None:
    flat = keras.Input(())
    with on_ipus():
        assert keras.Model(flat, flat * 2.0).predict(ONES[:, :1], verbose=0).shape == (10,)


def test_1d_inputs_expanded_to_2d() -> None:
    column = keras.Input((1,))
    with on_ipus():
        predicted = keras.Model(column, column * 2.0).predict(ONES[:, 0], verbose=0)
    assert predicted.shape == (10, 1)


def test_none_in_shape() -> None:
    """Sizes that the model leaves open are those of the data."""
    inputs = keras.Input((None, None, 1))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(2, 3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(pooled))
    with on_ipus():
        for size in (5, 6):
            images = np.ones((2, size, size, 1), np.float32)
            alike(model.predict(images, verbose=0), np.asarray(model(images)))


def test_sequential_as_downstream_of_masking_layer() -> None:
    def program() -> Any:
        inputs = keras.Input((3, 4))
        inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
        masked = keras.layers.Masking(mask_value=0.0)(inputs)
        model = keras.Model(inputs, keras.layers.TimeDistributed(inner)(masked))
        model.compile("rmsprop", "mse")
        x = np.ones((10, 3, 4), np.float32)
        for row in range(3):
            x[row, row:] = 0.0
        return model.fit(x, np.ones((10, 3, 5), np.float32), **RUN).history, values(model.weights)

    alike(*twins(program))


def test_add_loss() -> None:
    """Losses that layers add: alone, with a compiled loss, and of labels that are inputs."""

    class AddMean(keras.layers.Layer):
        def call(self, inputs: Any, labels: Any = None) -> Any:
            error = inputs if labels is None else (inputs - labels) ** 2
            self.add_loss(keras.ops.mean(error))
            return inputs

    def program() -> Any:
        inputs, labels = keras.Input((5,)), keras.Input((1,))
        alone = keras.Model(inputs, AddMean()(keras.layers.Dense(1)(inputs)))
        alone.compile("sgd")
        with_labels = keras.Model(
            [inputs, labels], AddMean()(keras.layers.Dense(1)(inputs), labels=labels)
        )
        with_labels.compile("adam", "mae")
        return [
            alone.fit(X, **RUN).history,
            with_labels.fit([X, X[:, :1]], X[:, 1:2], **RUN).history,
            values(with_labels.weights),
        ]

    alike(*twins(program))


def test_input_spec() -> None:
    """A wrong shape is Keras's own error; the model works on."""
    inputs = keras.Input((10,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    with on_ipus():
        with pytest.raises(ValueError, match="incompatible with the layer"):
            model.predict(np.zeros((4, 11), np.float32), verbose=0)
        assert model.predict(ONES, verbose=0).shape == (10, 2)
