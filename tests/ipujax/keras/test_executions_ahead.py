"""Executions end while the device computes: what callbacks, data and users see stays as it was."""

from __future__ import annotations

import contextlib
import signal
from typing import Any, cast

import jax
import numpy as np
import pytest

pytest.importorskip("keras")

import keras

from ipujax.engine.queue_session import Collector
from ipujax.ipu_strategy import IPUStrategy
from ipujax.keras.execution_functions import ExecutionFunction
from tests.ipujax.keras.modelling import cnn, images, with_and_without

pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")


class Records(keras.callbacks.Callback):
    """Keeps the batch number and the logs of each execution, and may stop the training."""

    def __init__(self, last_batch=None):
        super().__init__()
        self.logs, self.last_batch = [], last_batch

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, dict(logs)))
        if batch == self.last_batch:
            cast(Any, self.model).stop_training = True


def executions_of(monkeypatch):
    """The logs that executions give from now on, as they give them."""
    given = []
    original = ExecutionFunction.__call__

    def record(self, state, batches):
        logs, state = original(self, state, batches)
        given.append(logs)
        return logs, state

    monkeypatch.setattr(ExecutionFunction, "__call__", record)
    return given


@pytest.mark.parametrize("use", ["fit", "evaluate"])
def test_an_execution_does_not_wait_for_its_logs(use, monkeypatch):
    monkeypatch.setattr(Collector, "_is_ready", lambda self: False)  # as on a slow device
    given = executions_of(monkeypatch)
    with IPUStrategy().scope():
        getattr(cnn(steps_per_execution=2), use)(*images(), batch_size=4, verbose=0)
    leaves = jax.tree.leaves(given)
    assert len(leaves) > 2
    assert all(isinstance(leaf, jax.Array) and leaf.shape == () for leaf in leaves)


def test_an_execution_waits_for_the_one_before(monkeypatch):
    given = executions_of(monkeypatch)
    waited_for = []
    original = jax.block_until_ready

    def record(tree):
        waited_for.append(tree)
        return original(tree)

    monkeypatch.setattr(jax, "block_until_ready", record)
    with IPUStrategy().scope():
        cnn(steps_per_execution=2).fit(*images(), batch_size=4, verbose=0)
    assert len(given) > 2
    for logs in given[:-1]:
        assert any(tree is logs for tree in waited_for)
    assert not any(tree is given[-1] for tree in waited_for)


@pytest.mark.parametrize("last_batch", [None, 3])
def test_callbacks_see_the_numbers_of_each_execution(last_batch):
    x, y = images()

    def use():
        model, callback = cnn(steps_per_execution=2), Records(last_batch)
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
        numbers = [(batch, *sorted(logs.items())) for batch, logs in callback.logs]
        return numbers, model.get_weights()

    (ours, our_weights), (theirs, their_weights) = with_and_without(use)
    assert [batch for batch, *_ in ours] == [batch for batch, *_ in theirs]
    assert ours[-1][0] == (last_batch or ours[-1][0])
    for (_, *our_logs), (_, *their_logs) in zip(ours, theirs, strict=True):
        assert [name for name, _ in our_logs] == [name for name, _ in their_logs]
        np.testing.assert_allclose(
            [value for _, value in our_logs], [value for _, value in their_logs], rtol=1e-5
        )
    for one, other in zip(our_weights, their_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_an_error_of_the_data_leaves_what_the_executions_before_learned():
    x, y = images(40)
    batches = [(x[i : i + 4], y[i : i + 4]) for i in range(0, 40, 4)]

    def failing_data():
        yield from batches[:4]
        raise OSError("the disk is gone")

    def fit_in_scope(data, expected):
        model = cnn(steps_per_execution=2)
        with IPUStrategy().scope():
            with expected:
                model.fit(data, shuffle=False, verbose=0)
            weights = model.get_weights()
            model.fit(x, y, batch_size=4, verbose=0)  # goes on
        return weights

    learned = fit_in_scope(failing_data(), pytest.raises(OSError, match="the disk is gone"))
    enough = fit_in_scope((batch for batch in batches[:4]), contextlib.nullcontext())
    for one, other in zip(learned, enough, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_interrupt_ends_the_training_and_keeps_its_weights():
    x, y = images(40)

    def interrupted_data():
        for number in range(1000):
            if number == 8:
                signal.raise_signal(signal.SIGINT)
            yield x[:4], y[:4]

    model = cnn(steps_per_execution=2)
    before = model.get_weights()
    with IPUStrategy().scope():
        with pytest.raises(KeyboardInterrupt):
            model.fit(interrupted_data(), shuffle=False, verbose=0)
        after = model.get_weights()
        assert not all(map(np.array_equal, before, after))
        assert all(np.isfinite(weights).all() for weights in after)
        model.fit(x, y, batch_size=4, verbose=0)  # goes on


def test_data_are_not_read_beyond_an_execution():
    x, y = images(40)
    read, seen = [], []

    def data():
        for i in range(0, 40, 4):
            read.append(i)
            yield x[i : i + 4], y[i : i + 4]

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, len(read)))

    with IPUStrategy().scope():
        cnn(steps_per_execution=2).fit(data(), shuffle=False, verbose=0, callbacks=[Looks()])
    # One more than was trained with tells that the data go on.
    assert all(batches <= batch + 2 for batch, batches in seen)
