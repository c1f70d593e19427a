"""What tests of estimators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipujax.ipu_session_run_hooks import SessionRunContext, SessionRunHook, SessionRunValues


def config(
    folder: Path | None = None,
    *,
    iterations: int = 1,
    replicas: int = 1,
    shards: int = 1,
    **more: Any,
) -> Any:
    """A run config, of a system with as many IPUs as it needs."""
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = replicas * shards
    run = ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=iterations,
        num_replicas=replicas,
        num_shards=shards,
        ipu_options=options,
    )
    place = None if folder is None else str(folder)
    return ipu.ipu_run_config.RunConfig(run, model_dir=place, **more)


def scalars(*values: float) -> list[Any]:
    """Batches of one number each."""
    return [np.float32([value]) for value in values]


class Runs(SessionRunHook):
    """Counts session runs, and keeps what they gave."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.steps: list[int] = []

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Keeps loss and step."""
        results: Any = run_values.results
        if isinstance(results, dict) and "loss" in results:
            self.losses.append(float(np.mean(results["loss"])))
        self.steps.append(run_context.session.global_step)


def linear(
    variables: Any, features: Any, labels: Any, mode: str, params: dict[str, Any]
) -> IPUEstimatorSpec:
    """A linear regression, as a model_fn."""
    predictions = features @ variables["w"] + variables["b"]
    if mode == ipu.ipu_estimator.ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions=predictions)
    return IPUEstimatorSpec(
        mode,
        loss=jnp.mean((predictions - labels) ** 2),
        train_op=optax.sgd(params.get("rate", 0.1)),
        eval_metric_ops={"error": ipu.metrics.mean_squared_error(labels, predictions)},
    )


def linear_init(key: Any, features: Any) -> Any:
    """Its variables."""
    return {"w": jnp.ones((features.shape[-1], 1)), "b": jnp.zeros(1)}


def regression(batches: int = 20, batch: int = 4) -> list[Any]:
    """Batches of a linear function's points."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batches, batch, 3)).astype(np.float32)
    y = (x @ np.float32([[1.0], [2.0], [3.0]]) + 1).astype(np.float32)
    return list(zip(x, y, strict=True))


def linear_estimator(folder: Path, **more: Any) -> IPUEstimator:
    """An estimator of it."""
    return IPUEstimator(linear, config=config(folder, **more), params={}, init_fn=linear_init)


def of(data: Iterable[Any]) -> Callable[[], Iterable[Any]]:
    """An input_fn of a data set."""
    return lambda: data
