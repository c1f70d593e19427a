"""What does not fit: clear errors, the last checkpoint intact, and the process goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from tests.ipujax.estimating import config, linear_estimator, of, regression, scalars

SGD = optax.sgd(0.1)


def train(model_fn: Any, data: Any = None, init_fn: Any = None, **more: Any) -> None:
    estimator = IPUEstimator(model_fn, config=config(), init_fn=init_fn, **more)
    estimator.train(data if callable(data) else of(data or scalars(1, 2)), steps=1)


def spec(**arguments: Any) -> Any:
    """A model_fn with this spec."""
    return lambda variables, features, mode: IPUEstimatorSpec(mode, **arguments)


@pytest.mark.parametrize(
    ("model_fn", "error", "message"),
    [
        (3, TypeError, "model_fn is 3"),
        (lambda: None, ValueError, "takes 0 positional arguments"),
        (
            lambda features, labels, mode, params: None,
            ValueError,
            "model_fn is given variables where it takes features",
        ),
        (lambda v, features, weather: None, ValueError, "takes weather, which nobody gives it"),
        (lambda v, features: None, ValueError, "model_fn returns None"),
        (lambda v: IPUEstimatorSpec("infer", 1), ValueError, "mode 'train'"),
        (spec(loss=jnp.ones(3), train_op=SGD), ValueError, r"loss has the shape \(3,\)"),
        (spec(loss=jnp.int32(3), train_op=SGD), TypeError, "has no gradient"),
        (spec(loss=jnp.float32(3)), ValueError, "no train_op"),
        (spec(train_op=SGD), ValueError, "no loss"),
        (spec(loss=jnp.float32(3), train_op="sgd"), TypeError, "gradient transformation"),
        (
            spec(loss=jnp.float32(1), train_op=SGD, training_hooks=[3]),
            TypeError,
            "an entry of training_hooks",
        ),
        (
            spec(loss=jnp.float32(1), train_op=SGD, state={"x": jnp.float32(1)}),
            ValueError,
            "that of init_fn",
        ),
        (
            spec(loss=jnp.float32(1), train_op=SGD, eval_metric_ops={"m": jnp.float32(1)}),
            TypeError,
            "one of ipujax.metrics",
        ),
    ],
)
def test_a_model_fn_that_does_not_fit(model_fn: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        train(model_fn)


def fine(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
    loss = jnp.mean(features)
    ops = {"mean": ipu.metrics.mean(loss)}
    return IPUEstimatorSpec(mode, features, loss, SGD, ops)


@pytest.mark.parametrize("returned", [None, 3, (np.float32(1), np.float32(2)), "data"])
def test_an_input_fn_gives_a_data_set(returned: Any) -> None:
    with pytest.raises(ValueError, match="which is no data set"):
        train(fine, lambda: returned)


def test_an_element_is_features_and_labels() -> None:
    with pytest.raises(ValueError, match="a tuple of 3 entries"):
        train(fine, of([(np.float32([1]),) * 3]))
    with pytest.raises(EOFError, match="is empty"):
        train(fine, of([]) and (lambda: []))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1, "max_steps": 2}, "both steps and max_steps"),
        ({"steps": 0}, "at least 1"),
        ({"max_steps": 0}, "at least 1"),
        ({"steps": 1, "saving_listeners": [1]}, "an entry of saving_listeners is 1"),
        ({"steps": 1, "hooks": [1]}, "an entry of hooks"),
    ],
)
def test_train_is_asked_for_something_that_can_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        IPUEstimator(fine, config=config()).train(of(scalars(1)), **arguments)


def test_metrics_of_the_host_stay_the_same() -> None:
    calls: list[int] = []

    def changing(value: Any) -> dict[str, Any]:
        calls.append(1)
        names = ["a"] if len(calls) == 1 else ["a", "b"]
        return dict.fromkeys(names, ipu.metrics.mean(value))

    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        loss = jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=(changing, [features]))

    with pytest.raises(ValueError, match="the same metrics in each step"):
        IPUEstimator(model_fn, config=config()).evaluate(of(scalars(1, 2)))


@pytest.mark.parametrize("returned", [3, {"a": 3.0}])
def test_metrics_of_the_host_are_metrics(returned: Any) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        metrics = (lambda x: returned, [features])
        return IPUEstimatorSpec(mode, loss=jnp.mean(features), eval_metrics=metrics)

    with pytest.raises(TypeError, match="must be"):
        IPUEstimator(model_fn, config=config()).evaluate(of(scalars(1, 2)))


def test_a_host_call_returns_something() -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        call = (lambda x: None), [features]
        return IPUEstimatorSpec(mode, loss=jnp.mean(features), train_op=SGD, host_call=call)

    with pytest.raises(TypeError, match="host_call returned None"):
        train(model_fn)


def test_examples_of_a_batch_are_equally_many() -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        predictions = {"a": features, "b": jnp.zeros(5)}
        return IPUEstimatorSpec(mode, predictions=predictions)

    estimator = IPUEstimator(model_fn, config=config())
    with pytest.raises(ValueError, match="cannot be taken apart"):
        next(estimator.predict(of(scalars(1))))
    (batch,) = estimator.predict(of(scalars(1)), yield_single_examples=False)
    assert batch["b"].shape == (5,)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path)
    estimator.train(of(regression()), steps=3)
    saved = estimator.latest_checkpoint()
    broken = [(x * np.nan, y) for x, y in regression()]
    with pytest.raises(ipu.errors.NanLossDuringTrainingError, match="ended with step 4"):
        estimator.train(of(broken), steps=3)
    assert estimator.latest_checkpoint() == saved
    estimator.train(of(regression()), steps=3)
    assert estimator.get_variable_value("global_step") == 6


def test_a_model_that_changed_names_what_differs(tmp_path: Path) -> None:
    linear_estimator(tmp_path).train(of(regression()), steps=1)

    def init_fn(key: Any, features: Any) -> Any:
        return {"w": jnp.ones((2, 1)), "bias": jnp.zeros(1)}

    changed = IPUEstimator(fine, config=config(tmp_path), init_fn=init_fn)
    with pytest.raises(ValueError, match="holds another tree") as error:
        changed.train(of(scalars(1)), steps=1)
    for part in ("variables/bias", "variables/b\n", "variables/w (float32[3,1]"):
        assert part in f"{error.value}\n"
    linear_estimator(tmp_path).train(of(regression()), steps=1)


def test_a_model_dir_is_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is no"):
        linear_estimator(tmp_path / "file").train(of(regression()), steps=1)
    assert (tmp_path / "file").read_text() == "x"
    with pytest.raises(ValueError, match="model_dir is"):
        IPUEstimator(fine, str(tmp_path / "a"), config(tmp_path / "b"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_model_dir_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="cannot be written"):
        linear_estimator(tmp_path / "closed").train(of(regression()), steps=1)


def test_two_do_not_train_in_one_folder(tmp_path: Path) -> None:
    inner: list[BaseException] = []

    class Another(ipu.ipu_session_run_hooks.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            try:
                linear_estimator(tmp_path).train(of(regression()), steps=1)
            except ValueError as error:
                inner.append(error)

    estimator = linear_estimator(tmp_path)
    estimator.train(of(regression()), hooks=[Another()], steps=1)
    assert "trains in" in str(inner[0])
    assert estimator.get_variable_value("global_step") == 1


def test_there_is_a_checkpoint_first(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path)
    with pytest.raises(ValueError, match="no checkpoint"):
        estimator.get_variable_names()
    with pytest.raises(ValueError, match="no checkpoint"):
        estimator.export_saved_model(str(tmp_path), lambda: np.float32([1]))
    estimator.train(of(regression()), steps=1)
    with pytest.raises(ValueError, match="the name of a variable is 'x'"):
        estimator.get_variable_value("x")
    with pytest.raises(ValueError, match="no path of a checkpoint"):
        estimator.evaluate(of(regression()), checkpoint_path="somewhere")


def test_an_error_of_the_data_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from regression(5)
        raise RuntimeError("the disk is gone")

    run = config(tmp_path, save_checkpoints_steps=2)
    estimator = IPUEstimator(
        linear_estimator(tmp_path).model_fn,
        config=run,
        params={},
        init_fn=lambda key, features: {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)},
    )
    with pytest.raises(RuntimeError, match="the disk is gone"):
        estimator.train(broken, steps=10)
    assert estimator.get_variable_value("global_step") == 4
    estimator.train(of(regression()), steps=1)
    assert estimator.get_variable_value("global_step") == 5


def test_an_init_fn_whose_arguments_are_in_another_order() -> None:
    with pytest.raises(ValueError, match="init_fn is given key where it takes features"):
        IPUEstimator(fine, config=config(), init_fn=lambda features, key: {})
