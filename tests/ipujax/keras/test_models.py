"""What models go through, in the scope of a strategy as without."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras
from keras.src.backend.jax.trainer import JAXTrainer

import ipujax as ipu
from ipujax.ipu_strategy import IPUStrategy
from ipujax.keras.execution_functions import ExecutionFunction
from tests.ipujax.keras.modelling import dense, numbers_agree, points, with_and_without

X, Y = points()
OPTIMIZERS = {
    "clipped": lambda: keras.optimizers.SGD(clipnorm=0.1, momentum=0.9),
    "averaged": lambda: keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=2),
    "accumulating": lambda: keras.optimizers.Adam(gradient_accumulation_steps=2),
    "decayed": lambda: keras.optimizers.AdamW(global_clipnorm=0.1),
    "scheduled": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.CosineDecay(0.1, decay_steps=2)
    ),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
}


@pytest.mark.exhaustive
def test_a_layer_that_trains_itself():
    class Trained(JAXTrainer, keras.layers.Dense):
        def __init__(self, units):
            keras.layers.Dense.__init__(self, units)
            JAXTrainer.__init__(self)

    def use():
        keras.utils.set_random_seed(1)
        model = Trained(2)
        model.compile("sgd", "mse")
        return model.fit(X, Y, verbose=0).history, model.predict(X, verbose=0)

    numbers_agree(use)


@pytest.mark.exhaustive
def test_copies_of_a_model_that_has_programs_train_on(tmp_path):
    def use():
        model = dense(optimizer="adam")
        model.fit(X, Y, verbose=0)
        model.predict(X, verbose=0)
        model.save(tmp_path / "model.keras")
        copies: list[Any] = [
            keras.models.load_model(tmp_path / "model.keras"),
            pickle.loads(pickle.dumps(model)),
            copy.deepcopy(model),
            model,
        ]
        cloned = keras.models.clone_model(model)
        assert cloned.train_function is None
        return [(each.fit(X, Y, verbose=0).history, each.get_weights()) for each in copies]

    numbers_agree(use)


@pytest.mark.exhaustive
def test_what_is_compiled_again_is_another_program():
    def use():
        model = dense(loss="mse")
        said = [model.fit(X, Y, verbose=0).history]
        model.compile("adam", "mae", metrics=["mse"], steps_per_execution=2)
        said += [model.fit(X, Y, batch_size=4, verbose=0).history]
        model.layers[0].trainable = False
        model.compile("sgd", "mse")
        said += [model.fit(X, Y, verbose=0).history]
        return said, model.get_weights()

    numbers_agree(use)


@pytest.mark.exhaustive
def test_weights_and_rates_may_be_changed_between_batches():
    class Changes(keras.callbacks.Callback):
        @property
        def trained(self) -> Any:
            return self.model

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                self.trained.layers[0].bias.assign_add([1.0, -1.0])

        def on_train_batch_end(self, batch, logs=None):
            self.trained.optimizer.learning_rate = 0.01 * (batch + 1)

    def use():
        model = dense()
        history = model.fit(X, Y, batch_size=3, epochs=2, callbacks=[Changes()], verbose=0)
        model.optimizer.learning_rate = 0.5
        again = model.fit(X, Y, verbose=0)
        return history.history, again.history, model.get_weights()

    numbers_agree(use)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_options_of_optimizers(name):
    def use():
        model = dense(optimizer=OPTIMIZERS[name])
        history = model.fit(X, Y, batch_size=3, epochs=2, verbose=0).history
        return history, model.get_weights(), [np.asarray(v) for v in model.optimizer.variables]

    numbers_agree(use)


def test_each_thread_has_scopes_of_its_own():
    ours = {}

    def fit(name, model):
        model.fit(X, Y, verbose=0)
        ours[name] = isinstance(model.train_function, ExecutionFunction)

    with IPUStrategy().scope():
        thread = threading.Thread(target=fit, args=("outside", dense()))
        thread.start()
        thread.join()
        fit("inside", dense())
    assert ours == {"outside": False, "inside": True}


def test_scopes_may_be_nested_and_the_device_configured_between_them():
    def use():
        model = dense()
        said = [model.fit(X, Y, verbose=0).history]
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with IPUStrategy().scope():
            said += [model.fit(X, Y, verbose=0).history]
        said += [model.fit(X, Y, verbose=0).history]
        return said, model.get_weights()

    numbers_agree(use)


@pytest.mark.exhaustive
def test_models_that_share_a_layer_train_in_turns():
    def use():
        keras.utils.set_random_seed(1)
        shared = keras.layers.Dense(3)
        models = [
            keras.Sequential([keras.Input((4,)), shared, keras.layers.Dense(2)]) for _ in range(2)
        ]
        for model in models:
            model.compile("sgd", "mse")
        said = [model.fit(X, Y, verbose=0).history for _ in range(2) for model in models]
        return said, [model.get_weights() for model in models]

    numbers_agree(use)


def test_types_of_what_comes_back():
    def use():
        model, kinds = dense(steps_per_execution=2), []

        def watch(_, logs):
            kinds.append({name: type(value).__name__ for name, value in logs.items()})

        callback = keras.callbacks.LambdaCallback(on_train_batch_end=watch)
        model.fit(X, Y, batch_size=3, verbose=0, callbacks=[callback])
        variables = [*model.variables, *model.optimizer.variables]
        kinds += [(type(v.value).__name__, str(v.value.dtype)) for v in variables]
        given = [
            model.predict(X, verbose=0),
            model.predict_on_batch(X),
            model.evaluate(X, Y, verbose=0),
        ]
        return kinds, [type(each).__name__ for each in given]

    ours, theirs = with_and_without(use)
    assert ours == theirs
