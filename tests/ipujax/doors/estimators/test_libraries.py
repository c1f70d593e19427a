"""Modules of flax, Equinox and Haiku in a `model_fn`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys
from tests.ipujax.estimating import Runs, config, of, regression


def spec_of(predictions: Any, labels: Any, mode: str, state: Any = None) -> IPUEstimatorSpec:
    if mode == ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions=predictions)
    loss = jnp.mean((predictions - labels) ** 2)
    ops = {"error": ipu.metrics.mean_squared_error(labels, predictions)}
    return IPUEstimatorSpec(
        mode, loss=loss, train_op=optax.adam(0.05), eval_metric_ops=ops, state=state
    )


def learns(estimator: IPUEstimator) -> None:
    """Trains, and evaluates and predicts with what was learnt."""
    data, runs = of(regression(40)), Runs()
    before = estimator.evaluate(data)["error"]
    estimator.train(data, hooks=[runs], steps=40)
    after = estimator.evaluate(data)
    assert after["error"] < before / 4
    np.testing.assert_allclose(after["error"], after["loss"], rtol=1e-5)
    assert np.isfinite(list(estimator.predict(data, num_predictions=8))).all()
    assert len(runs.losses) == 4


@pytest.mark.exhaustive
def test_a_flax_module_with_batch_statistics_and_dropout(tmp_path: Path) -> None:
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = nn.BatchNorm(use_running_average=not train)(nn.Dense(16)(x))
            x = nn.Dropout(0.05, deterministic=not train)(nn.tanh(x))
            return nn.Dense(1)(x)

    model = Model()

    def init_fn(key: Any, features: Any) -> Any:
        made = model.init(key, features, False)
        return made["params"], made["batch_stats"]

    def model_fn(
        variables: Any, features: Any, labels: Any, mode: str, state: Any, key: Any
    ) -> IPUEstimatorSpec:
        is_training = mode == ModeKeys.TRAIN
        predictions, new = model.apply(
            {"params": variables, "batch_stats": state},
            features,
            is_training,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return spec_of(predictions, labels, mode, new["batch_stats"])

    run = config(tmp_path, iterations=10)
    estimator = IPUEstimator(model_fn, config=run, init_fn=init_fn)
    learns(estimator)
    assert "state/BatchNorm_0/mean" in estimator.get_variable_names()
    assert "Dense_0/kernel" in estimator.get_variable_names()


def test_an_equinox_module(tmp_path: Path) -> None:
    eqx = pytest.importorskip("equinox", reason="equinox is not installed")
    import jax

    def made(key: Any) -> Any:
        return eqx.nn.MLP(3, 1, 16, 1, activation=jnp.tanh, key=key)

    structure = eqx.filter_eval_shape(made, jax.random.key(0))
    _, static = eqx.partition(structure, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def init_fn(key: Any, features: Any) -> Any:
        return eqx.filter(made(key), eqx.is_array)

    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        model = eqx.combine(variables, static)
        return spec_of(jax.vmap(model)(features), labels, mode)

    run = config(tmp_path, iterations=10)
    learns(IPUEstimator(model_fn, config=run, init_fn=init_fn))


@pytest.mark.exhaustive
def test_a_haiku_module(tmp_path: Path) -> None:
    hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")

    def network(x: Any, train: bool) -> Any:
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(16)(x), train)
        return hk.Linear(1)(jnp.tanh(x))

    model = hk.transform_with_state(network)

    def init_fn(key: Any, features: Any) -> Any:
        return model.init(key, features, True)

    def model_fn(
        variables: Any, features: Any, labels: Any, mode: str, state: Any, key: Any
    ) -> IPUEstimatorSpec:
        train = mode == ModeKeys.TRAIN
        predictions, new = model.apply(variables, state, key, features, train)
        return spec_of(predictions, labels, mode, new)

    run = config(tmp_path, iterations=10)
    learns(IPUEstimator(model_fn, config=run, init_fn=init_fn))
