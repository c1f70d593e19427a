"""Session run hooks: when they are told what, and what the ready-made ones do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import logging

import ipujax as ipu
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipujax.ipu_session_run_hooks import (
    EarlyStoppingHook,
    IPULoggingTensorHook,
    ProfilerHook,
    SessionRunHook,
    StopAtStepHook,
)
from tests.ipujax.estimating import Runs, config, linear_estimator, of, regression, scalars


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged with severity INFO."""
    lines: list[str] = []

    def info(text: str, *args: Any) -> None:
        lines.append(text % args)

    monkeypatch.setattr(logging, "info", info)
    return lines


@pytest.mark.fact("session_hooks.args")
@pytest.mark.parametrize("arguments", [{"every_n_iter": 1, "every_n_secs": 1}, {}])
def test_a_logging_hook_logs_by_one_interval(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="every_n_iter"):
        IPULoggingTensorHook(**arguments)


@pytest.mark.fact("session_hooks.types")
@pytest.mark.parametrize("tensors", ["foo", [1.0]])
def test_arrays_are_logged(tensors: Any) -> None:
    with pytest.raises(TypeError, match="must be an array"):
        IPULoggingTensorHook(at_end=True).log(tensors)


def run_with(hook: IPULoggingTensorHook, log: Any, runs: int = 1, iterations: int = 1) -> None:
    """Runs a loop that logs what is made of its number, as an estimator does."""

    def body(number: Any) -> Any:
        hook.log(log(number))
        return number + 1

    loop = ipu.compile(lambda start: ipu.loops.repeat(iterations, body, [start]))
    loop(jnp.float32(1))  # traced before begin, and sends its values
    hook.begin()
    for index in range(runs):
        if index:
            loop(jnp.float32(1))
        hook.after_run(None, None)  # type: ignore[arg-type]
    hook.end(None)  # type: ignore[arg-type]


@pytest.mark.fact("session_hooks.log_twice")
def test_a_hook_logs_once_in_a_trace() -> None:
    hook = IPULoggingTensorHook(at_end=True)

    def twice(x: Any) -> Any:
        hook.log(x)
        hook.log(x)
        return x

    with pytest.raises(RuntimeError, match="log was called twice"):
        ipu.compile(twice)(jnp.float32(1))


def test_a_hook_without_anything_to_log_says_so() -> None:
    with pytest.raises(RuntimeError, match="nothing to log"):
        IPULoggingTensorHook(at_end=True).begin()


@pytest.mark.fact("session_hooks.format")
@pytest.mark.parametrize(
    ("log", "text"),
    [
        (lambda x: 42 * x, "tensor_0 = 42.0"),
        (lambda x: [42 * x, 43 * x], "tensor_0 = 42.0, tensor_1 = 43.0"),
        (lambda x: {"foo": 42 * x, "bar": 43 * x}, "foo = 42.0, bar = 43.0"),
    ],
)
def test_names_and_values_are_logged(told: list[str], log: Any, text: str) -> None:
    run_with(IPULoggingTensorHook(every_n_iter=1), log)
    assert sorted(told[0].split(", ")) == sorted(text.split(", "))


def test_a_formatter_makes_the_text(told: list[str]) -> None:
    hook = IPULoggingTensorHook(every_n_iter=1, formatter=lambda values: f"<{values['x']}>")
    run_with(hook, lambda x: {"x": x})
    assert told == ["<1.0>"]


@pytest.mark.fact("session_hooks.at_end")
def test_nothing_is_logged_before_the_end(told: list[str]) -> None:
    run_with(IPULoggingTensorHook(at_end=True), lambda x: {"foo": x}, runs=3)
    assert told == ["foo = 1.0"]


@pytest.mark.fact("session_hooks.all_at_end")
def test_all_values_are_logged_at_the_end(told: list[str]) -> None:
    hook = IPULoggingTensorHook(at_end=True, logging_mode=IPULoggingTensorHook.LoggingMode.ALL)
    run_with(hook, lambda x: {"foo": x}, runs=2, iterations=2)
    assert told == ["foo = [1. 2. 1. 2.]"]


@pytest.mark.fact("session_hooks.every_n_secs")
def test_a_hook_logs_by_the_clock(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    hook = IPULoggingTensorHook(every_n_secs=0.5)
    send = ipu.compile(lambda x: hook.log({"foo": x}))
    send(jnp.float32(0))
    hook.begin()
    counts: list[int] = []
    for now[0] in (1.0, 1.49, 1.5):
        send(jnp.float32(0))
        hook.after_run(None, None)  # type: ignore[arg-type]
        counts.append(len(told))
    assert counts == [1, 1, 2]


def test_a_hook_of_the_model_fn_logs_each_loop(told: list[str], tmp_path: Path) -> None:
    hooks: list[IPULoggingTensorHook] = []

    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        all_values = IPULoggingTensorHook.LoggingMode.ALL
        hook = IPULoggingTensorHook(every_n_iter=1, logging_mode=all_values)
        hook.log({"twice": 2 * features[0]})
        hooks.append(hook)
        loss = variables["w"] * jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=optax.sgd(0.1), training_hooks=[hook])

    estimator = IPUEstimator(
        model_fn,
        config=config(tmp_path, iterations=2, log_step_count_steps=None),
        init_fn=lambda key, features: {"w": jnp.float32(1)},
    )
    estimator.train(of(scalars(1, 2, 3, 4)), steps=4)
    traces = len(hooks)
    estimator.train(of(scalars(5, 6)), steps=2)
    logged = [line.partition(" (")[0] for line in told if line.startswith("twice")]
    assert logged == ["twice = [2. 4.]", "twice = [6. 8.]", "twice = [10. 12.]"]
    assert len(hooks) == traces  # nothing was traced again


class Order(SessionRunHook):
    """Notes when it is told what."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def begin(self) -> None:
        self.notes.append("begin")

    def before_run(self, run_context: Any) -> None:
        self.notes.append("before")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.notes.append("after")

    def end(self, session: Any) -> None:
        self.notes.append("end")


def test_hooks_are_told_in_order(tmp_path: Path) -> None:
    estimator, notes = linear_estimator(tmp_path, iterations=5), []  # type: ignore[var-annotated]
    order = Order(notes)
    estimator.train(of(regression()), hooks=[order], steps=10)
    assert notes == ["begin", "before", "after", "before", "after", "end"]
    notes.clear()
    for _ in estimator.predict(of(regression(5)), hooks=[order]):
        notes.append("yield")
    # Whether there is more data is known when a device loop asks for it.
    assert notes == ["begin", "before", "after", *["yield"] * 20, "before", "end"]


def test_a_hook_cannot_fetch(tmp_path: Path) -> None:
    class Fetches(SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return {"loss": "loss:0"}

    with pytest.raises(ValueError, match="no graph to fetch from"):
        linear_estimator(tmp_path).train(of(regression()), hooks=[Fetches()], steps=1)


def test_stopping_ends_after_the_device_loop(tmp_path: Path) -> None:
    estimator, runs = linear_estimator(tmp_path, iterations=2), Runs()
    estimator.train(of(regression()), hooks=[runs, StopAtStepHook(num_steps=3)], steps=20)
    assert runs.steps == [2, 4]
    estimator.train(of(regression()), hooks=[runs, StopAtStepHook(last_step=6)], steps=20)
    assert runs.steps == [2, 4, 6]
    assert estimator.get_variable_value("global_step") == 6


def test_a_loss_that_stays_stops_a_training(tmp_path: Path) -> None:
    estimator, runs = linear_estimator(tmp_path, iterations=2), Runs()
    estimator = IPUEstimator(
        estimator.model_fn,
        config=config(tmp_path, iterations=2),
        params={"rate": 0.0},
        init_fn=lambda key, features: {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)},
    )
    data = of([regression(1)[0]] * 40)
    estimator.train(data, hooks=[runs, EarlyStoppingHook(6)], steps=40)
    assert runs.steps[-1] == 8


def test_a_profile_is_written_every_some_steps(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path / "model", iterations=2)
    hook = ProfilerHook(save_steps=4, output_dir=tmp_path / "traces")
    estimator.train(of(regression()), hooks=[hook], steps=12)
    names = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert names == ["timeline-2.json", "timeline-8.json"]
    events = json.loads((tmp_path / "traces" / names[0]).read_text())["traceEvents"]
    assert any(str(event.get("cat", "")).endswith("execute") for event in events)


def test_a_profile_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    hook = ProfilerHook(save_steps=1, output_dir=tmp_path / "file")
    with pytest.raises(ValueError, match=r"ProfilerHook cannot write .*timeline-1.json: File exi"):
        linear_estimator(tmp_path / "model").train(of(regression()), hooks=[hook], steps=1)


@pytest.mark.parametrize("hook", [StopAtStepHook, ProfilerHook])
def test_hooks_need_to_know_when(hook: Any) -> None:
    with pytest.raises(ValueError, match="needs one of"):
        hook()


def test_the_loss_of_replicas_is_a_mean(told: list[str], tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        optimizer = ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.0))
        loss = variables["w"] * jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=optimizer)

    estimator = IPUEstimator(
        model_fn,
        config=config(tmp_path, iterations=2, replicas=2, log_step_count_steps=4),
        init_fn=lambda key, features: {"w": jnp.float32(1)},
    )
    estimator.train(of(scalars(*range(12))), steps=6)
    losses = [line for line in told if line.startswith("loss")]
    assert losses == ["loss = 1.5, step = 2", "loss = 9.5, step = 6"]
    assert np.isclose(estimator.get_variable_value("w"), 1)
