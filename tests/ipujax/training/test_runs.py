"""Runs of device loops: callbacks, data that ends, errors, and what is compiled when."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import events
from ipujax.errors import OutOfRangeError
from ipujax.training import Callback, Pipeline, Run, Training
from tests.ipujax.feeding import compilations, configure
from tests.ipujax.training.regression import (
    STAGED,
    Watch,
    batches,
    close,
    first_stage,
    last_stage,
    loss_of,
    plain,
    replicas,
    staged_loss,
    trained,
)

SGD = optax.sgd(0.1)
ZEROS = np.zeros(3, np.float32)


def test_callbacks_are_told_of_each_device_loop() -> None:
    _, watch = trained(Training(loss_of, SGD, steps_per_loop=2), 5)
    loops = ["before", "after 2", "before", "after 4", "before", "after 5"]
    assert watch.told == ["begin", *loops, "end"]
    close(watch.results, plain(SGD, 5)[1])


def test_begin_comes_when_the_model_has_been_traced() -> None:
    told: list[str] = []

    def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        told.append("traced")
        return loss_of(weights, x, y)

    class Begin(Callback):
        def begin(self, run: Run) -> None:
            told.append("begin")

    training = Training(loss, SGD)
    training.fit(training.init(ZEROS), batches, 1, [Begin()])
    assert told == ["traced", "begin"]


def test_a_callback_may_stop_the_run() -> None:
    training = Training(loss_of, SGD, steps_per_loop=2)
    watch = Watch(stop_at=4)
    state = training.fit(training.init(ZEROS), batches, 100, [watch])
    assert (state.step, watch.told[-1]) == (4, "end")
    close(state.variables, plain(SGD, 4)[0])


def test_results_come_while_the_loop_runs() -> None:
    there = threading.Event()

    def data() -> Iterator[Any]:
        for number, element in enumerate(batches()):
            if number == 400:
                assert there.wait(60)  # the loop cannot end before a result has come out
            yield element

    class Live(Callback):
        def __init__(self) -> None:
            self.results: list[float] = []

        def result(self, run: Run, result: Any) -> None:
            self.results.append(float(result))
            there.set()

    live, watch = Live(), Watch()
    training = Training(loss_of, SGD, engine="replay")
    state = training.fit(training.init(ZEROS), data, 500, [live, watch])
    assert state.step == 500
    np.testing.assert_array_equal(live.results, watch.results)


def test_a_live_callback_that_raises_ends_the_run_and_loses_nothing() -> None:
    class Live(Callback):
        def result(self, run: Run, result: Any) -> None:
            raise RuntimeError("no")

    training = Training(loss_of, SGD, steps_per_loop=3)
    with pytest.raises(RuntimeError, match="no") as caught:
        training.fit(training.init(ZEROS), batches, 9, [Live()])
    assert caught.value.carried.step == 3
    close(caught.value.carried.variables, plain(SGD, 3)[0])


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_training_ends_where_the_data_does(
    engine: str, accumulation: int, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(loss_of, SGD, accumulation=accumulation, steps_per_loop=4, engine=engine)
    done = 7
    with caplog.at_level(logging.INFO):
        state, watch = trained(training, 100, lambda: batches(done * accumulation))
    assert state.step == done
    close(state.variables, plain(SGD, done, accumulation)[0])
    assert watch.told[-2:] == [f"after {done}", "end"]
    assert f"ended after {done} of 100 steps" in caplog.text


def test_data_that_ends_within_an_update_leaves_the_state_before_it() -> None:
    training = Training(loss_of, SGD, accumulation=3, steps_per_loop=4)
    state, _ = trained(training, None, lambda: batches(17))
    assert state.step == 5
    close(state.variables, plain(SGD, 5, 3)[0])


def test_replicas_and_pipelines_end_with_the_data_too() -> None:
    replicas(2)
    state, _ = trained(Training(loss_of, SGD, steps_per_loop=4), None, lambda: batches(13))
    assert state.step == 6
    close(state.variables, plain(SGD, 6, 2, 1 / 2)[0])
    staged = Training(Pipeline([first_stage, last_stage]), SGD, accumulation=4, steps_per_loop=2)
    state, _ = trained(staged, None, lambda: batches(23), STAGED)
    assert state.step == 5
    close(state.variables, plain(SGD, 5, 4, loss=staged_loss, variables=STAGED)[0])


def test_data_that_ends_with_a_device_loop_runs_no_empty_one() -> None:
    state, watch = trained(Training(loss_of, SGD, steps_per_loop=2), None, lambda: batches(4))
    assert state.step == 4
    assert watch.told == ["begin", "before", "after 2", "before", "after 4", "before", "end"]


def test_an_iterator_goes_on_where_it_was_and_a_list_starts_anew() -> None:
    training = Training(loss_of, SGD, steps_per_loop=2)
    state, iterator = training.init(ZEROS), batches(8)
    training.compile(state, iterator, 2)  # looks at the first element
    for steps in (2, 4, None):
        state = training.fit(state, iterator, steps)
    assert state.step == 8
    close(state.variables, plain(SGD, 8)[0])
    elements, first = list(batches(2)), training.init(ZEROS)
    once = training.fit(first, elements, 1)
    close(training.fit(first, elements, 1).variables, once.variables)
    with pytest.raises(OutOfRangeError, match="data set is empty"):
        training.fit(first, [], 1)


def test_errors_of_data_and_callbacks_carry_the_state() -> None:
    def broken() -> Iterator[Any]:
        yield from batches(5)
        raise RuntimeError("the disk is full")

    training = Training(loss_of, SGD, steps_per_loop=2)
    with pytest.raises(RuntimeError, match="the disk is full") as caught:
        training.fit(training.init(ZEROS), broken, 10)
    carried = caught.value.carried
    assert carried.step == 4
    close(carried.variables, plain(SGD, 4)[0])
    state = training.fit(carried, list(batches(8))[4:], 4)
    close(state.variables, plain(SGD, 8)[0])


def test_results_of_a_failed_loop_are_not_those_of_the_next() -> None:
    def broken() -> Iterator[Any]:
        yield from batches(3)
        raise RuntimeError("no")

    training, watch = Training(loss_of, SGD, engine="replay"), Watch()
    start = training.init(ZEROS)
    with pytest.raises(RuntimeError, match="no"):
        training.fit(start, broken, 4)
    training.fit(start, batches, 4, [watch])
    close(watch.results, plain(SGD, 4)[1])


def test_the_same_shapes_compile_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    training = Training(loss_of, optax.adam(0.1), steps_per_loop=2)
    state = training.init(jnp.zeros(3))
    with events.record() as trace:
        state = training.fit(state, batches, 4)
    assert compilations(trace) == 1
    caplog.clear()
    with events.record() as trace, jax.log_compiles():
        state = training.fit(state, list(batches(6)), 6)
    assert (compilations(trace), state.step) == (0, 10)
    assert "Compiling" not in caplog.text  # nor did XLA
    other = ((np.tile(x, (2, 1)), np.tile(y, 2)) for x, y in batches())
    with events.record() as trace:
        training.fit(state, other, 2)
    assert compilations(trace) == 1
    executable = training.compile(state, itertools.repeat(next(other)), 2)
    assert executable is training.executable
    assert executable.report().cycles > 0


def test_another_configuration_compiles_anew() -> None:
    training = Training(loss_of, SGD)
    trained(training, 2)
    configure(2)
    state, watch = trained(training, 2)
    assert watch.results.shape == (2, 2)
    close(state.variables, plain(SGD, 2, 2, 1 / 2)[0])


def test_the_device_is_that_of_the_scope() -> None:
    configure(1, 2)
    with ipu.scopes.ipu_scope("/device:IPU:1"):
        training = Training(loss_of, SGD)
    state, watch = trained(training, 2)
    assert watch.results.shape == (2, 2)  # the second device has two replicas
    close(state.variables, plain(SGD, 2, 2, 1 / 2)[0])


@pytest.mark.parametrize("name", ["repeat_count", "infeed_queue", "optimizer_function"])
def test_options_of_a_pipeline_that_the_training_gives_itself(name: str) -> None:
    with pytest.raises(ipu.errors.TrainingError, match=f"have {name}, which Training"):
        ipu.training.Pipeline([lambda v, x: x], {name: 1})
