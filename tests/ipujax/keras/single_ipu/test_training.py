"""Training, evaluation and prediction of all kinds of models: the original's `training_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Kind, alike, keras, model_of, on_ipus, twins, values

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

RANDOM = np.random.default_rng(7)
A, B = (RANDOM.random((10, 3), np.float32) for _ in range(2))
D, E = (RANDOM.random((10, 4), np.float32) for _ in range(2))
RUN: dict[str, Any] = {"batch_size": 5, "verbose": 0}
ONES = np.ones((10, 1), np.float32)


def branches(**compiled: Any) -> Any:
    """Two inputs through one dense layer, one of them through a dropout too."""
    a, b = (keras.Input((3,), name=f"input_{name}") for name in "ab")
    dense = keras.layers.Dense(4, name="dense")
    model = keras.Model([a, b], [dense(b), keras.layers.Dropout(0.5, name="dropout")(dense(a))])
    model.compile(
        keras.optimizers.RMSprop(0.001),
        **{
            "loss": ["mse", "mse"],
            "loss_weights": [1.0, 0.5],
            "metrics": ["mae", "mse"],
            **compiled,
        },
    )
    return model


INPUTS = {"lists": [A, B], "dicts": {"input_a": A, "input_b": B}}
TARGETS = {"lists": [D, E], "dicts": {"dense": D, "dropout": E}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["lists", "dicts"])
@pytest.mark.parametrize("validation", ["none", "data", "split"])
def test_fit_on_arrays(form: str, validation: str) -> None:
    def program() -> Any:
        options: dict[str, Any] = {
            "none": {},
            "data": {"validation_data": (INPUTS[form], TARGETS[form])},
            "split": {"validation_split": 0.2},
        }[validation]
        metrics: Any = [["mae"], [keras.metrics.CategoricalAccuracy()]]
        if form == "dicts":
            # Keras wants all of them in the form of the targets.
            model = branches(
                loss={"dense": "mse", "dropout": "mae"},
                loss_weights={"dense": 1.0, "dropout": 0.5},
                metrics=dict(zip(("dense", "dropout"), metrics, strict=True)),
            )
        else:
            model = branches(metrics=metrics)
        history = model.fit(INPUTS[form], TARGETS[form], epochs=2, **RUN, **options).history
        return history, values(model.weights)

    alike(*twins(program))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_evaluate_predict_on_arrays(verbose: int) -> None:
    def program() -> Any:
        model = branches(metrics=[["mae"], ["mae"]])
        return [
            model.evaluate(INPUTS["lists"], TARGETS["lists"], batch_size=5, verbose=verbose),
            model.test_on_batch(INPUTS["lists"], TARGETS["lists"]),
            model.predict(INPUTS["dicts"], batch_size=5, verbose=verbose),
            model.predict_on_batch(INPUTS["dicts"]),
        ]

    ours, keras_own = twins(program)
    assert len(ours[0]) == 5
    alike(ours, keras_own)


def test_fit_training_arg() -> None:
    class Told(keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            return inputs + 100.0 if training else inputs

    with on_ipus():
        model = keras.Sequential([Told()])
        model.compile("sgd", "mse")
        zero = np.zeros((1, 1), np.float32)
        history = model.fit(zero, zero, validation_data=(zero, zero), verbose=0).history
    assert history == {"loss": [10000.0], "val_loss": [0.0]}


def test_fit_and_validate_nested_training_arg() -> None:
    """Layers within layers are told whether they train, without being handed it."""

    class Inner(keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            return keras.ops.ones_like(inputs) if training else keras.ops.zeros_like(inputs)

    class Outer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    with on_ipus():
        model = keras.Sequential([Outer()])
        model.compile("sgd", "mae")
        history = model.fit(ONES, ONES, validation_data=(ONES, ONES), epochs=2, **RUN).history
    assert history == {"loss": [0.0, 0.0], "val_loss": [1.0, 1.0]}


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_error_when_model_is_not_compiled(method: str) -> None:
    with on_ipus():
        model = model_of("functional", [keras.layers.Dense(1)], (1,))
        with pytest.raises(ValueError, match="You must call `compile"):
            getattr(model, method)(ONES, ONES)


def test_predict_needs_no_compile() -> None:
    alike(*twins(lambda: model_of("functional", [keras.layers.Dense(1)]).predict(ONES, verbose=0)))


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_run_eagerly_setting(method: str) -> None:
    """Nothing runs eagerly on an IPU; outside the scope it still does."""
    model = model_of("functional", [keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    arguments = (ONES,) if method == "predict" else (ONES, ONES)
    with on_ipus(), pytest.raises(ValueError, match="run_eagerly"):
        getattr(model, method)(*arguments, verbose=0)
    getattr(model, method)(*arguments, verbose=0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_target_dtype_matches_output(kind: Kind) -> None:
    dtypes: list[tuple[str, str]] = []

    def loss(labels: Any, predicted: Any) -> Any:
        dtypes.append((str(labels.dtype), str(predicted.dtype)))
        return labels - predicted

    half = ONES.astype(np.float16)
    with on_ipus():
        model = model_of(kind, [keras.layers.Dense(4, dtype="float16") for _ in range(2)])
        model.compile("sgd", loss)
        model.train_on_batch(half, np.ones((10, 4), np.float16))
        model.test_on_batch(half, np.ones((10, 4), np.float16))
        assert model.predict(half, batch_size=5, verbose=0).dtype == np.float16
    assert dtypes
    assert all(labels == predicted for labels, predicted in dtypes)


def test_logs_passed_to_callbacks() -> None:
    said: dict[str, list[Any]] = {"batch": [], "epoch": []}
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: said["batch"].append(logs),
        on_epoch_end=lambda epoch, logs: said["epoch"].append(logs),
    )
    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(1, activation="sigmoid")], (3,))
        model.compile("sgd", "binary_crossentropy", metrics=["acc"], weighted_metrics=["mae"])
        model.fit(
            A, ONES, batch_size=2, epochs=2, validation_data=(A, ONES), callbacks=[keep], verbose=0
        )
    assert [set(logs) for logs in said["batch"]] == [{"loss", "acc", "mae"}] * 10
    names = {"loss", "acc", "mae", "val_loss", "val_acc", "val_mae"}
    assert [set(logs) for logs in said["epoch"]] == [names] * 2


@pytest.mark.parametrize(
    ("frequency", "runs"), [(1, 4), (2, 2), (4, 1), ([1, 3, 4], 3), ([4, 2, 2], 2)]
)
def test_validation_freq(frequency: Any, runs: int) -> None:
    begun: list[Any] = []
    count = keras.callbacks.LambdaCallback()
    count.on_test_begin = begun.append
    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(1)], (1,))
        model.compile("sgd", "mse")
        model.fit(
            ONES, ONES, epochs=4, validation_data=(ONES, ONES), validation_freq=frequency,
            callbacks=[count], **RUN,
        )  # fmt: skip
    assert len(begun) == runs


@pytest.mark.parametrize("kind", KINDS)
def test_layer_with_variable_output(kind: Kind) -> None:
    class Variable(keras.layers.Layer):
        def build(self, _: Any) -> None:
            self.v = self.add_weight(name="v", shape=(2, 5), initializer="ones")

        def call(self, _: Any) -> Any:
            return self.v.value

    def program() -> Any:
        model = model_of(kind, [Variable(), keras.layers.Dense(1)], (1,))
        model.compile("sgd", "mse")
        model.fit(ONES, ONES, batch_size=2, epochs=2, verbose=0)
        return values(model.trainable_variables)

    ours, keras_own = twins(program)
    assert len(ours) == 3
    alike(ours, keras_own)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_model_dtype(dtype: str) -> None:
    class Checks(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            assert keras.backend.standardize_dtype(inputs.dtype) == dtype
            return inputs + 1.0

    with on_ipus():
        model = model_of("subclass", [Checks(dtype=dtype)])
        model.compile("sgd", "mse")
        loss = model.evaluate(ONES, ONES, verbose=0)
    assert loss == 1.0


def test_model_input_dtype() -> None:
    half = np.ones((10, 10), np.float16)
    alike(*twins(lambda: fitted(half, half)))


def test_float64_is_taken_as_float32() -> None:
    alike(*twins(lambda: fitted(A.astype(np.float64), D.astype(np.float64))))


def fitted(x: Any, y: Any) -> Any:
    model = model_of("sequential", [keras.layers.Dense(y.shape[-1])], x.shape[1:])
    model.compile("sgd", "mse")
    return model.fit(x, y, **RUN).history, values(model.weights), model.predict(x, verbose=0)


def test_outputs_are_floats() -> None:
    with on_ipus():
        model = model_of("sequential", [keras.layers.Dense(1)], (1,))
        model.compile("sgd", "mse", metrics=["accuracy"])
        history = model.fit(ONES, ONES, epochs=2, verbose=0).history
        assert {type(value) for epochs in history.values() for value in epochs} == {float}
        assert {type(value) for value in model.evaluate(ONES, ONES, verbose=0)} == {float}
        for method in (model.train_on_batch, model.test_on_batch):
            assert all(np.ndim(value) == 0 for value in method(ONES, ONES))


@pytest.mark.parametrize("compiled", [True, False])
def test_evaluate_with_custom_test_step(compiled: bool) -> None:
    class Custom(keras.Model):
        def test_step(self, state: Any, data: Any) -> Any:
            logs: dict[str, Any] = {}
            if compiled:
                logs, state = super().test_step(state, data)
            predicted, _ = self.stateless_call(state[0], state[1], data[0])
            return logs | {
                "mean": keras.ops.mean(predicted),
                "sum": keras.ops.sum(predicted),
            }, state

    def program() -> Any:
        inputs = keras.Input((3,))
        model = Custom(inputs, keras.layers.Dense(4)(inputs))
        model.compile("adam", "mse", metrics=["mae"])
        return model.evaluate(A, D, return_dict=True, **RUN)

    ours, keras_own = twins(program)
    assert set(ours) == {"mean", "sum"} | ({"loss", "mae"} if compiled else set())
    alike(ours, keras_own)


@pytest.mark.parametrize("kind", ["train", "test", "predict"])
def test_model_make_function(kind: str) -> None:
    """A function is made once, and again where it must be."""
    with on_ipus():
        model = model_of("functional", [keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        make = getattr(model, f"make_{kind}_function")
        name = f"{kind}_function"
        make()
        made = getattr(model, name)
        assert made is not None
        make()
        assert getattr(model, name) is made
        make(force=True)
        assert getattr(model, name) is not made


@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
def test_on_batch_error_inconsistent_batch_size(method: str) -> None:
    with on_ipus():
        model = branches()
        with pytest.raises((ValueError, TypeError)):
            getattr(model, method)([A, B], [D[:9], E[:9]])
        assert len(model.get_weights()) == 2


def test_calling_model_on_different_datasets() -> None:
    """Batches of other sizes than those before are programs of their own."""

    class Twice(keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs * 2

    with on_ipus():
        model = Twice()
        first = model.predict(np.arange(2.0, dtype=np.float32), batch_size=2, verbose=0)
        second = model.predict(np.arange(3.0, 10.0, dtype=np.float32), batch_size=3, verbose=0)
    np.testing.assert_array_equal(first, [0, 2])
    np.testing.assert_array_equal(second, 2 * np.arange(3, 10))
