"""Numbers and names that an estimator cannot act on are refused, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import EstimatorError, IPUError
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys
from ipujax.ipu_run_config import IPURunConfig, RunConfig
from ipujax.ipu_session_run_hooks import EarlyStoppingHook, IPULoggingTensorHook, ProfilerHook
from tests.ipujax.estimating import config, linear, linear_init, regression

WRONG = (math.inf, -math.inf, math.nan, True, -1, 1.5, "3", [1], np.float32(2))


def estimator(**arguments: Any) -> Any:
    """An estimator of a linear regression."""
    return IPUEstimator(linear, config=config(), params={}, init_fn=linear_init, **arguments)


INTEGERS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda value, name=name: estimator(**{name: value})
        for name in ("train_batch_size", "eval_batch_size", "predict_batch_size")
    },
    **{
        name: lambda value, name=name: IPURunConfig(**{name: value})
        for name in ("iterations_per_loop", "num_replicas", "num_shards", "ordinal")
    },
    "prefetch_depth": lambda value: IPURunConfig(prefetch_depth=value),
    **{
        name: lambda value, name=name: RunConfig(**{name: value})
        for name in (
            "save_summary_steps",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_step_count_steps",
            "experimental_max_worker_delay_secs",
        )
    },
    "max_steps": lambda value: estimator().train(lambda: iter([]), max_steps=value),
    "steps": lambda value: estimator().train(lambda: iter([]), steps=value),
    "steps of evaluate": lambda value: estimator().evaluate(lambda: iter([]), steps=value),
    "num_predictions": lambda value: estimator().predict(list, num_predictions=value),
    "every_n_iter": lambda value: IPULoggingTensorHook(every_n_iter=value),
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda value, name=name: RunConfig(**{name: value})
        for name in (
            "save_checkpoints_secs",
            "keep_checkpoint_every_n_hours",
            "session_creation_timeout_secs",
        )
    },
    "every_n_secs": lambda value: IPULoggingTensorHook(every_n_secs=value),
    "save_secs": lambda value: ProfilerHook(save_secs=value),
    "min_delta": lambda value: EarlyStoppingHook(1, min_delta=value),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    for value in WRONG:
        with pytest.raises(IPUError, match=name.split()[0]) as caught:
            INTEGERS[name](value)
        assert isinstance(caught.value, (ValueError, TypeError))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    for value in (math.inf, -math.inf, math.nan, True, "3", [1]):
        with pytest.raises(IPUError, match=name) as caught:
            NUMBERS[name](value)
        assert isinstance(caught.value, (ValueError, TypeError))
    NUMBERS[name](1.5)


def test_seeds() -> None:
    for value in (2**63, -(2**63) - 1, 1.0, math.inf, True):
        with pytest.raises(IPUError, match="tf_random_seed"):
            RunConfig(tf_random_seed=value)
    assert RunConfig(tf_random_seed=-1).tf_random_seed == -1


@pytest.mark.parametrize("mode", ["train", "eval", "predict"])
def test_a_batch_size_needs_params(mode: str) -> None:
    made = estimator(**{f"{mode}_batch_size": 4})
    use: dict[str, Callable[[Any], Any]] = {
        "train": lambda input_fn: made.train(input_fn, steps=1),
        "eval": lambda input_fn: made.evaluate(input_fn, steps=1),
        "predict": lambda input_fn: next(made.predict(input_fn)),
    }
    with pytest.raises(EstimatorError, match="is 4, and input_fn takes no params"):
        use[mode](lambda: iter(regression()))
    use[mode](lambda params: iter(regression(batch=params["batch_size"])))
    for other in use.keys() - {mode}:
        use[other](lambda: iter(regression()))


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_names_of_metrics_that_an_evaluation_has(name: str) -> None:
    metric = ipu.metrics.mean(jnp.ones(3))
    with pytest.raises(EstimatorError, match=f"a metric is called '{name}'"):
        IPUEstimatorSpec(ModeKeys.EVAL, loss=1.0, eval_metric_ops={name: metric})

    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> Any:
        call = (lambda x: {name: ipu.metrics.mean(x)}, [features])
        return IPUEstimatorSpec(mode, loss=jnp.mean(labels), eval_metrics=call)

    made = IPUEstimator(model_fn, config=config(), init_fn=linear_init)
    with pytest.raises(EstimatorError, match=f"a metric is called '{name}'"):
        made.evaluate(lambda: iter(regression()), steps=1)


@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL])
def test_features_without_labels_are_exported_or_told(mode: str, tmp_path: Path) -> None:
    made = estimator(model_dir=str(tmp_path / "model"))
    made.train(lambda: iter(regression()), steps=1)
    features = jax.ShapeDtypeStruct(np.shape(regression()[0][0]), np.float32)
    with pytest.raises(EstimatorError, match="features and no labels") as caught:
        made.export_saved_model(tmp_path, lambda: features, experimental_mode=mode)
    assert "return \\(features, labels\\)".replace("\\", "") in caught.value.fix
    labels = jax.ShapeDtypeStruct(np.shape(regression()[0][1]), np.float32)
    made.export_saved_model(tmp_path, lambda: (features, labels), experimental_mode=mode)
