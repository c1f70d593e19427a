"""Training by an estimator: against optax's own steps, state, keys, warm starts, data that ends."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import CheckpointError, EstimatorError
from ipujax.ground import files
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys
from tests.ipujax.estimating import (
    Runs,
    config,
    linear,
    linear_estimator,
    linear_init,
    of,
    regression,
    scalars,
)


def trained(data: list[Any], optimizer: Any) -> Any:
    """The variables after a step for each element, by plain JAX."""
    variables = linear_init(None, data[0][0])
    state = optimizer.init(variables)

    def loss(variables: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ variables["w"] + variables["b"] - y) ** 2)

    for x, y in data:
        gradients = jax.grad(loss)(variables, x, y)
        updates, state = optimizer.update(gradients, state, variables)
        variables = optax.apply_updates(variables, updates)
    return variables


@pytest.mark.parametrize("iterations", [1, 5])
def test_training_makes_the_steps_of_optax(tmp_path: Path, iterations: int) -> None:
    data = regression(10)
    estimator = linear_estimator(tmp_path, iterations=iterations)
    assert estimator.train(of(data), steps=10) is estimator
    wanted = trained(data, optax.sgd(0.1))
    for name in ("w", "b"):
        np.testing.assert_allclose(estimator.get_variable_value(name), wanted[name], rtol=1e-5)
    assert estimator.get_variable_names() == ["b", "global_step", "w"]


def test_variables_without_gradients_stay_as_they_are(tmp_path: Path) -> None:
    """Integers, booleans and keys reach no optimizer, and are kept; complex numbers are trained."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))
    others = {"n": jnp.int32(2), "on": jnp.array([True, False]), "key": jax.random.key(5)}

    def init(key: Any, features: Any) -> Any:
        return {"w": jnp.ones(3), "z": jnp.full(3, 1 + 1j, jnp.complex64), **others}

    def loss(variables: Any, x: Any) -> Any:
        scale = variables["n"] * variables["on"].sum()
        return jnp.mean(jnp.abs(x * variables["w"] * variables["z"]).sum(1) * scale)

    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        return IPUEstimatorSpec(mode, loss=loss(variables, features), train_op=optimizer)

    data = regression(6)
    estimator = IPUEstimator(model_fn, config=config(tmp_path, iterations=2), init_fn=init)
    estimator.train(of(data), steps=4)
    estimator.train(of(data[4:]), steps=2)  # from a checkpoint
    wanted = {name: init(None, None)[name] for name in ("w", "z")}
    state = optimizer.init(wanted)
    for x, _ in data:
        gradients = jax.grad(lambda v, x=x: loss({**v, **others}, x))(wanted)
        updates, state = optimizer.update(gradients, state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    for name, array in wanted.items():
        np.testing.assert_allclose(estimator.get_variable_value(name), array, rtol=1e-5)
    assert estimator.get_variable_value("n") == 2
    assert list(estimator.get_variable_value("on")) == [True, False]


def test_the_optimizers_state_goes_on(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        loss = jnp.mean((features @ variables["w"] + variables["b"] - labels) ** 2)
        return IPUEstimatorSpec(mode, loss=loss, train_op=optax.adam(0.1))

    data = regression(12)
    for begin, end in ((0, 6), (6, 12)):  # another estimator, as another process would have
        estimator = IPUEstimator(model_fn, config=config(tmp_path), init_fn=linear_init)
        estimator.train(of(data[begin:end]), steps=6)
    wanted = trained(data, optax.adam(0.1))
    np.testing.assert_allclose(estimator.get_variable_value("w"), wanted["w"], rtol=1e-5)


def test_a_learning_rate_may_follow_the_global_step(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str, global_step: Any) -> IPUEstimatorSpec:
        rate = jnp.where(global_step < 4, 1.0, 0.0)
        loss = variables["w"] * jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=optax.sgd(rate))

    estimator = IPUEstimator(
        model_fn,
        config=config(tmp_path, iterations=2),
        init_fn=lambda key, features: {"w": jnp.float32(0)},
    )
    estimator.train(of(scalars(*[1] * 10)), steps=10)
    assert estimator.get_variable_value("w") == -4


def normalized(variables: Any, features: Any, mode: str, state: Any, key: Any) -> IPUEstimatorSpec:
    """A model with untrained state and noise."""
    mean = jnp.mean(features)
    new = {"mean": 0.5 * state["mean"] + 0.5 * mean, "seen": state["seen"] + 1}
    noise = jax.random.normal(key)
    loss = variables["w"] * (mean + noise)
    ops = {"mean": ipu.metrics.mean(state["mean"]), "noise": ipu.metrics.mean(noise)}
    return IPUEstimatorSpec(
        mode,
        {"mean": state["mean"][None], "noise": noise[None]},
        loss,
        optax.sgd(1.0),
        ops,
        state=new,
    )


def normalized_init(key: Any, features: Any) -> Any:
    return {"w": jnp.float32(1)}, {"mean": jnp.float32(0), "seen": jnp.int32(0)}


def test_untrained_state_is_kept(tmp_path: Path) -> None:
    estimator = IPUEstimator(
        normalized, config=config(tmp_path, iterations=2), init_fn=normalized_init
    )
    estimator.train(of(scalars(1, 2, 3, 4)), steps=4)
    assert estimator.get_variable_names() == ["global_step", "state/mean", "state/seen", "w"]
    assert estimator.get_variable_value("state/seen") == 4
    assert estimator.get_variable_value("state/mean") == 3.0625
    scores = estimator.evaluate(of(scalars(7)), steps=None)
    assert (scores["mean"], scores["global_step"]) == (3.0625, 4)
    assert estimator.get_variable_value("state/seen") == 4  # an evaluation changes nothing


def test_keys_follow_the_step(tmp_path: Path) -> None:
    """Noise differs from step to step, and a training that was cut in two has the same."""

    def weights(*parts: int) -> float:
        folder = tmp_path / "-".join(map(str, parts))
        run = config(folder, tf_random_seed=3)
        for steps in parts:
            estimator = IPUEstimator(normalized, config=run, init_fn=normalized_init)
            estimator.train(of(scalars(*[0] * steps)), steps=steps)
        last = IPUEstimator(normalized, config=run)
        return float(last.get_variable_value("w"))

    whole = weights(6)
    assert weights(2, 4) == whole
    key = jax.random.key(3)
    noise = [jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, i), 0)) for i in range(6)]
    np.testing.assert_allclose(whole, 1 - sum(map(float, noise)), rtol=1e-5)


def test_replicas_have_keys_of_their_own() -> None:
    estimator = IPUEstimator(normalized, config=config(replicas=2), init_fn=normalized_init)
    data = of(scalars(*range(8)))
    noise = [float(each["noise"]) for each in estimator.predict(data)]
    assert len(set(noise)) == 8


def test_the_data_may_end_first(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path, iterations=4)
    estimator.train(of(regression(10)), steps=40)
    assert estimator.get_variable_value("global_step") == 10
    wanted = trained(regression(10), optax.sgd(0.1))
    np.testing.assert_allclose(estimator.get_variable_value("w"), wanted["w"], rtol=1e-5)
    estimator.train(of(regression(4)))
    assert estimator.get_variable_value("global_step") == 14


@pytest.mark.parametrize("by_folder", [False, True])
def test_a_warm_start_takes_variables_alone(tmp_path: Path, by_folder: bool) -> None:
    first = linear_estimator(tmp_path / "first")
    first.train(of(regression()), steps=10)
    source = first.model_dir if by_folder else first.latest_checkpoint()
    second = IPUEstimator(
        linear,
        config=config(tmp_path / "second"),
        init_fn=linear_init,
        warm_start_from=source,
    )
    error = first.evaluate(of(regression()))["error"]
    wanted = {"error": error, "loss": error, "global_step": 0}
    assert second.evaluate(of(regression())) == pytest.approx(wanted, rel=1e-6)
    second.train(of(regression()), steps=10)
    again = IPUEstimator(
        linear,
        config=config(tmp_path / "second"),
        init_fn=linear_init,
        warm_start_from=source,
    )
    assert again.evaluate(of(regression()))["error"] < error  # its own checkpoint counts


def test_an_older_checkpoint_may_be_used(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path)
    estimator.train(of(regression()), steps=1)
    older, error = estimator.latest_checkpoint(), estimator.evaluate(of(regression()))["error"]
    estimator.train(of(regression()), steps=10)
    assert estimator.latest_checkpoint() != older
    scores = estimator.evaluate(of(regression()), checkpoint_path=older)
    assert (scores["error"], scores["global_step"]) == (error, 1)


def test_without_checkpoints_the_estimator_remembers(tmp_path: Path) -> None:
    run = config(tmp_path, save_checkpoints_steps=None, save_checkpoints_secs=None)
    estimator = IPUEstimator(linear, config=run, params={}, init_fn=linear_init)
    before = estimator.evaluate(of(regression()))["error"]
    estimator.train(of(regression()), steps=5)
    estimator.train(of(regression()), steps=5)
    assert estimator.latest_checkpoint() is None
    scores = estimator.evaluate(of(regression()))
    assert scores["error"] < before
    assert scores["global_step"] == 10


def test_checkpoints_are_saved_by_steps_and_some_are_kept(tmp_path: Path) -> None:
    run = config(tmp_path, iterations=2, save_checkpoints_steps=4, keep_checkpoint_max=2)
    estimator = IPUEstimator(linear, config=run, params={}, init_fn=linear_init)
    saved: list[str | None] = []

    class Looks(Runs):
        def before_run(self, run_context: Any) -> None:
            saved.append(estimator.latest_checkpoint())

    estimator.train(of(regression()), hooks=[Looks()], steps=14)
    steps = [0 if path is None else int(Path(path).stem.split("-")[1]) for path in saved]
    assert steps == [0, 0, 4, 4, 8, 8, 12]
    assert len(list(tmp_path.glob("ckpt-*"))) == 2


def test_predictions_by_key_and_an_end(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        return IPUEstimatorSpec(mode, predictions={"x": features, "square": features**2})

    estimator = IPUEstimator(model_fn, config=config(tmp_path, iterations=4))
    given = list(estimator.predict(of(scalars(1, 2, 3)), predict_keys=["square"]))
    assert given == [{"square": 1.0}, {"square": 4.0}, {"square": 9.0}]
    with pytest.raises(ValueError, match="none of the predictions"):
        next(estimator.predict(of(scalars(1)), predict_keys=["cube"]))


def test_dictionaries_of_features_and_labels(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        if mode == ModeKeys.PREDICT:
            assert labels is None
            return IPUEstimatorSpec(mode, predictions=features["a"] + features["b"])
        loss = jnp.mean(features["a"] + features["b"] - labels["y"])
        return IPUEstimatorSpec(
            mode, loss=loss, eval_metric_ops={"loss_again": ipu.metrics.mean(loss)}
        )

    element = {"a": np.float32([1]), "b": np.float32([2])}, {"y": np.float32([0.5])}
    estimator = IPUEstimator(model_fn, config=config(tmp_path))
    assert estimator.evaluate(of([element]))["loss_again"] == 2.5
    assert list(estimator.predict(of([element]))) == [3.0]


def test_a_mode_can_be_modelled_with_and_without_a_run(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path, iterations=2)
    with pytest.raises(ValueError, match="nothing has run in mode 'train'"):
        estimator.report()
    modelled = estimator.report(input_fn=of(regression()))
    estimator.train(of(regression()), steps=2)
    assert estimator.report().cycles == modelled.cycles
    evaluated = estimator.report(ModeKeys.EVAL, of(regression()))
    assert evaluated.cycles < modelled.cycles
    assert estimator.report("evaluate", of(regression())).cycles == evaluated.cycles


def test_the_mode_that_was_made_last_is_reported_where_none_trained(tmp_path: Path) -> None:
    linear_estimator(tmp_path, iterations=2).train(of(regression()), steps=2)
    estimator = linear_estimator(tmp_path, iterations=2)
    estimator.evaluate(of(regression()), steps=2)
    assert estimator.report() is estimator.report("evaluate")
    with pytest.raises(ValueError, match="the mode to report is 'fit'"):
        estimator.report("fit")


def test_curves_are_written_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    estimator = linear_estimator(tmp_path, iterations=2, log_step_count_steps=4)
    estimator.train(of(regression()), steps=12)
    estimator.evaluate(of(regression()), name="held_out")
    files = {path.parent.name for path in tmp_path.rglob("events.out.tfevents.*")}
    assert files == {tmp_path.name, "eval_held_out"}
    training = next(tmp_path.glob("events.out.tfevents.*")).read_bytes()
    assert training.count(b"loss") == 3
    assert training.count(b"global_step/sec") == 2
    held_out = next(Path(estimator.eval_dir("held_out")).iterdir()).read_bytes()
    assert {b"loss", b"error"} <= {name for name in (b"loss", b"error") if name in held_out}


def test_a_full_disk_ends_no_curves_and_names_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record_writer = pytest.importorskip("tensorboardX.record_writer")
    monkeypatch.setattr(record_writer, "open_file", lambda path: open("/dev/full", "wb"))
    estimator = linear_estimator(tmp_path / "first", iterations=1, log_step_count_steps=1)
    estimator.train(of(regression()), steps=16)  # more values than a queue of the writer's holds
    assert estimator.latest_checkpoint() == str(tmp_path / "first" / "ckpt-16")
    (warning,) = [r.getMessage() for r in caplog.records if "TensorBoard" in r.getMessage()]
    assert str(tmp_path / "first") in warning
    assert "No space left on device; make room there" in warning

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(CheckpointError, match=r"second: No space left") as caught:
        linear_estimator(tmp_path / "second").train(of(regression()), steps=1)
    assert "make room there" in str(caught.value)


@pytest.mark.parametrize("below", ["x", "x/y"])
def test_a_folder_below_a_file_is_refused_by_its_name(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EstimatorError, match=r"model_dir .*file/x.* is no folder"):
        linear_estimator(tmp_path / "file" / below).train(of(regression()), steps=1)


def test_rates_texts_and_summaries_are_written_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")

    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        rate = optax.inject_hyperparams(optax.sgd)(learning_rate=0.25)
        loss = variables["w"] * jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=rate)

    class Writes(Runs):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            message = ipu.summary_ops.tensor_summary("own_numbers", np.float32([1, 2]))
            run_context.session.write_summary(message)

    run = config(tmp_path)
    summarized = dataclasses.replace(run.ipu_run_config, compile_summary=True)
    estimator = IPUEstimator(
        model_fn,
        config=run.replace(ipu_run_config=summarized),
        init_fn=lambda key, features: {"w": jnp.float32(0)},
    )
    estimator.train(of(scalars(1, 2)), hooks=[Writes()], steps=2)
    written = b"".join(path.read_bytes() for path in tmp_path.glob("events.out.*"))
    for name in (b"learning_rate", b"compile_summary", b"own_numbers"):
        assert name in written


def test_a_terminal_shows_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Bar:
        n = 0

        def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
            shown.append(s)

        def update(self, n: float = 1) -> None:
            self.n += int(n)

        def close(self) -> None:
            shown.append(f"{self.n} steps")

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "ipujax.doors.estimators.training_log.progress_bar", lambda total, title: Bar()
    )
    linear_estimator(tmp_path, iterations=5).train(of(regression()), steps=10)
    assert len(shown) == 3
    assert shown[0].startswith("loss ")
    assert shown[0].endswith(" examples/s")
    assert shown[-1] == "10 steps"


def test_only_the_chief_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, '
    monkeypatch.setenv("TF_CONFIG", cluster + '"task": {"type": "worker", "index": 0}}')
    estimator = linear_estimator(tmp_path)
    estimator.train(of(regression()), steps=2)
    assert estimator.latest_checkpoint() is None


def test_the_log_has_the_trainings_lines_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    estimator = linear_estimator(tmp_path, iterations=5)
    with caplog.at_level("INFO", "absl"):
        estimator.train(of(regression()), steps=5)
    lines = [record.getMessage() for record in caplog.records if record.name == "absl"]
    assert len(lines) == 1
    assert lines[0].startswith("loss = ")
    assert lines[0].endswith(", step = 5")
