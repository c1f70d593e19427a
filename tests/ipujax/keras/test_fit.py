"""What Keras's models do in the scope of a strategy is what they do without."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("keras")

from ipujax.ipu_strategy import IPUStrategy
from tests.harness import run_python
from tests.ipujax.keras.modelling import cnn, images, with_and_without


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("steps", [1, 3, 32])
def test_all_modes_give_the_same_numbers(steps):
    x, y = images()

    def use():
        model = cnn(steps_per_execution=steps)
        history = model.fit(x, y, batch_size=8, epochs=3, validation_split=0.2, verbose=0).history
        return [
            *history.values(),
            model.evaluate(x, y, batch_size=8, verbose=0),
            model.predict(x, batch_size=8, verbose=0),
            model.train_on_batch(x[:4], y[:4]),
            model.test_on_batch(x[:4], y[:4]),
            model.predict_on_batch(x[:4]),
            *model.get_weights(),
        ]

    for ours, theirs in zip(*with_and_without(use), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.exhaustive
def test_the_bits_are_the_same_where_xla_optimizes(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    program = """
        import numpy as np
        from tests.ipujax.keras.modelling import cnn, images, with_and_without

        x, y = images()

        def use():
            model = cnn()
            history = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history
            return history, model.get_weights()

        ours, theirs = with_and_without(use)
        print(ours[0] == theirs[0], all(map(np.array_equal, ours[1], theirs[1])))
    """
    assert run_python(program, 1, tmp_path).split() == ["True", "True"]


@pytest.mark.exhaustive
def test_outside_the_scope_everything_is_keras_own_again():
    x, y = images(8)
    model = cnn()
    with IPUStrategy().scope():
        model.fit(x, y, verbose=0)
        inside = model.train_function
    model.fit(x, y, verbose=0)
    assert type(model.train_function) is not type(inside)


def test_weights_outlive_an_error():
    model = cnn()

    def data():
        x, y = images(8)
        yield x, y
        raise RuntimeError("the disk is gone")

    with IPUStrategy().scope(), pytest.raises(RuntimeError, match="the disk is gone"):
        model.fit(data(), shuffle=False, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.exhaustive
def test_an_incomplete_batch_is_told_of_once(caplog):
    x, y = images(12)
    with IPUStrategy().scope():
        model = cnn()
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    told = [record for record in caplog.messages if "has 4 examples only" in record]
    assert len(told) == 1
    assert model.name in told[0]
