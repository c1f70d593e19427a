"""Bad input is refused in Keras's own terms, and costs neither weights nor the process."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

pytest.importorskip("keras")

import keras

from ipujax.errors import KerasError, LeakedValueError
from ipujax.ipu_strategy import IPUStrategy
from tests.harness import run_python
from tests.ipujax.keras.modelling import dense, numbers_agree, points, with_and_without

X, Y = points()


class Leaking(keras.layers.Layer):
    """Keeps a value of the trace; adds the one before, if asked."""

    def __init__(self, used=False):
        super().__init__()
        self.used = used

    def call(self, x):
        before = getattr(self, "kept", None)
        self.kept = keras.ops.sum(x)
        return x + before if self.used and before is not None else x


class Leaks(keras.Model):
    """A model with such a layer."""

    def __init__(self, used):
        super().__init__()
        self.leaking, self.last = Leaking(used), keras.layers.Dense(2)

    def call(self, x):
        return self.last(self.leaking(x))


def goes_on(model):
    """Checks that a model that was refused something still trains, with Keras's numbers."""
    weights = model.get_weights()

    def use():
        model.set_weights(weights)
        return model.fit(X, Y, verbose=0).history, model.get_weights()

    numbers_agree(use)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "wrong",
    [
        lambda model: model.fit(X[:, :3], Y, verbose=0),
        lambda model: model.fit(X, np.zeros((len(X), 3)), verbose=0),
        lambda model: model.fit(X, Y[:3], verbose=0),
        lambda model: model.fit(np.full(X.shape, "a"), Y, verbose=0),
        lambda model: model.predict(np.full(X.shape, None), verbose=0),
        lambda model: model.train_on_batch(X, Y, sample_weight=X[:, 0], class_weight={0: 1.0}),
    ],
    ids=["inputs", "targets", "lengths", "words", "objects", "weights"],
)
def test_wrong_data_has_the_error_of_keras(wrong):
    models = []

    def use():
        keras.backend.clear_session()  # the names of layers are part of messages
        models.append(dense())
        with pytest.raises(Exception, match=r".") as error:
            wrong(models[-1])
        return error.type, str(error.value)

    ours, theirs = with_and_without(use)
    assert ours == theirs
    goes_on(models[0])


def test_a_value_that_is_kept_does_no_harm():
    def use():
        keras.utils.set_random_seed(1)
        model = Leaks(used=False)
        model.compile("sgd", "mse")
        first = model.fit(X, Y, verbose=0).history
        return first, model.fit(X, Y, verbose=0).history, model.predict(X, verbose=0)

    numbers_agree(use)


def test_a_value_that_is_kept_and_used_is_named_as_the_cause():
    model = Leaks(used=True)
    model.compile("sgd", "mse")
    with IPUStrategy().scope(), pytest.raises(LeakedValueError, match="leaked out of its scope"):
        model.fit(X, Y, verbose=0)
    model.leaking.used = False
    goes_on(model)


def test_a_distribution_of_keras_is_refused():
    model = dense()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
    try:
        with (
            IPUStrategy().scope(),
            pytest.raises(KerasError, match=r"keras\.distribution is set") as error,
        ):
            model.fit(X, Y, verbose=0)
    finally:
        keras.distribution.set_distribution(None)
    assert "set_distribution(None)" in str(error.value)
    assert f"{__file__}:" in str(error.value)  # the user's line, and none of Keras
    goes_on(model)


@pytest.mark.parametrize("use", ["evaluate", "predict", "fit"])
def test_an_error_of_the_data_leaves_the_model_as_it_was(use):
    def data():
        yield X[:4], Y[:4]
        raise OSError("the disk is gone")

    model = dense()
    before = model.get_weights() if use != "fit" else None
    options = {"shuffle": False} if use == "fit" else {}
    with IPUStrategy().scope(), pytest.raises(OSError, match="the disk is gone"):
        getattr(model, use)(data(), verbose=0, **options)
    if before is not None:
        for one, other in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)
    goes_on(model)


def test_an_error_of_a_callback_leaves_what_was_learned_so_far():
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise OSError("the disk is full")

    def use():
        model = dense()
        with contextlib.suppress(OSError):
            model.fit(X, Y, batch_size=3, shuffle=False, verbose=0, callbacks=[Fails()])
        return model.get_weights()

    numbers_agree(use)


@pytest.mark.exhaustive
def test_a_model_of_before_the_scope_is_fitted_in_it():
    model = dense()
    model.fit(X, Y, verbose=0)
    goes_on(model)


@pytest.mark.exhaustive
def test_another_backend_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    program = """
        import keras
        from ipujax.errors import KerasError
        from ipujax.ipu_strategy import IPUStrategy

        try:
            with IPUStrategy().scope():
                pass
        except KerasError as error:
            print(error)
    """
    said = run_python(program, 1, tmp_path)
    assert "Keras runs on numpy" in said
    assert "KERAS_BACKEND=jax" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("settings", [None, '{"backend": "tensorflow"}', "nonsense"])
@pytest.mark.parametrize("first", ["IPUStrategy().scope()", "ipu.keras.PipelineStage(0)"])
def test_keras_runs_on_jax_where_nothing_is_chosen(first, settings, tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if settings is not None:
        (tmp_path / "keras.json").write_text(settings, "utf-8")
    program = f"""
        import importlib.util
        import logging
        import ipujax as ipu
        from ipujax.ipu_strategy import IPUStrategy

        assert importlib.util.find_spec("tensorflow") is None
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        logging.getLogger("ipujax").addHandler(handler)
        for _ in range(2):
            with {first}:
                import keras
                print(keras.backend.backend())
        told = [record.getMessage() for record in records if "KERAS_BACKEND" in record.getMessage()]
        print(len(told))
    """
    assert run_python(program, 1, tmp_path).split() == ["jax", "jax", "1"]


def test_a_backend_of_the_settings_stays(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "keras.json").write_text('{"backend": "numpy"}', "utf-8")
    program = """
        from ipujax.errors import KerasError
        from ipujax.ipu_strategy import IPUStrategy

        with IPUStrategy().scope():
            import keras
            print(keras.backend.backend())
        try:
            with IPUStrategy().scope():
                pass
        except KerasError as error:
            print(error)
    """
    said = run_python(program, 1, tmp_path)
    assert said.startswith("numpy")
    assert "Keras runs on numpy" in said


@pytest.mark.exhaustive
def test_variables_may_be_those_of_nnx(tmp_path, monkeypatch):
    pytest.importorskip("flax")
    monkeypatch.setenv("KERAS_NNX_ENABLED", "true")
    program = """
        from keras.src.backend.config import is_nnx_enabled
        from tests.ipujax.keras.modelling import dense, numbers_agree, points

        x, y = points()

        def use():
            model = dense(optimizer="adam")
            return model.fit(x, y, batch_size=4, verbose=0).history, model.predict(x, verbose=0)

        numbers_agree(use)
        print(is_nnx_enabled())
    """
    assert run_python(program, 1, tmp_path).split()[-1] == "True"
