"""Estimators that workers train together; each worker has a folder of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax import horovod as hvd
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys
from ipujax.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipujax.ipu_session_run_hooks import SessionRunHook
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import OptimizerFunctionOutput

rank, size = hvd.rank(), hvd.size()
replicas = ipu.popdist.getNumLocalReplicas()
strategy = IPUMultiWorkerStrategy()
folder = os.path.join(sys.argv[1], str(rank))
GLOBAL, ACCUMULATED = 8, 4
DATA = np.random.default_rng(0).normal(size=(64, GLOBAL, 3)).astype(np.float32)
told: dict[str, Any] = {"index": rank}


def tell(name: str, value: Any) -> None:
    told[name] = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), value)


def dealt(input_context: Any, params: Any) -> Iterator[Any]:
    """This worker's parts of batches of all: those of its replicas in turn."""
    parts = size * replicas
    assert params.get("batch_size", GLOBAL // parts) == GLOBAL // parts
    assert input_context.num_input_pipelines == size
    assert input_context.get_per_replica_batch_size(GLOBAL) == GLOBAL // size
    first = input_context.input_pipeline_id * replicas
    for batch in DATA:
        for x in np.split(batch, parts)[first : first + replicas]:
            yield x, x @ np.float32([[1], [2], [3]]) + 1


def config(name: str, iterations: int, shards: int = 1, **more: Any) -> Any:
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = replicas * shards
    run = ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=iterations,
        num_replicas=replicas,
        num_shards=shards,
        ipu_options=options,
    )
    return ipu.ipu_run_config.RunConfig(
        run,
        model_dir=os.path.join(folder, name),
        train_distribute=strategy,
        eval_distribute=strategy,
        **more,
    )


def files(name: str) -> list[str]:
    place = os.path.join(folder, name)
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def init(key: Any, features: Any) -> Any:
    """Variables and moving mean of the chief; other workers would have others."""
    return {"w": jnp.full((3, 1), rank + 0.5), "b": jnp.zeros(1)}, jnp.full(3, rank + 1.0)


def optimizer() -> Any:
    return CrossReplicaOptimizer(optax.sgd(0.1, momentum=0.9))


def model(
    variables: Any, features: Any, labels: Any, mode: str, params: Any, state: Any
) -> IPUEstimatorSpec:
    predictions = features @ variables["w"] + variables["b"]
    if mode == ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions=predictions)
    return IPUEstimatorSpec(
        mode,
        loss=jnp.mean((predictions - labels) ** 2) / size,
        train_op=optimizer(),
        eval_metric_ops={"error": ipu.metrics.mean_squared_error(labels, predictions)},
        state=0.9 * state + 0.1 * features.mean(0),
    )


class StopsAtLastWorker(SessionRunHook):
    def after_run(self, run_context: Any, run_values: Any) -> None:
        if rank == size - 1:
            run_context.request_stop()


def whole(estimator: Any) -> Any:
    """What the chief's checkpoint holds."""
    return {n: estimator.get_variable_value(n) for n in estimator.get_variable_names()}


def functions() -> None:
    def made() -> IPUEstimator:
        run = config("function", 2, save_checkpoints_steps=4, save_summary_steps=2)
        return IPUEstimator(model, config=run, params={}, train_batch_size=GLOBAL, init_fn=init)

    estimator = made()
    tell("in config", [estimator.config.is_chief, estimator.config.num_worker_replicas])
    estimator.train(dealt, steps=6)
    estimator.train(dealt, max_steps=10)
    again = made()  # has what the chief's folder has
    again.train(dealt, steps=2)
    tell("evaluated", again.evaluate(dealt, steps=4))
    predicted = again.predict(lambda: [DATA[0]] * (2 * replicas), num_predictions=GLOBAL)
    tell("predicted", list(predicted))
    again.train(dealt, [StopsAtLastWorker()], steps=10)
    tell("function files", [name for name in files("function") if name.startswith("ckpt")])
    if rank == 0:
        tell("function", whole(again))


def pipelines() -> None:
    def first(variables: Any, state: Any, x: Any, y: Any) -> Any:
        return ipu.pipelining_ops.StageOutput((x @ variables["w"], y), 0.9 * state + x.mean(0))

    def second(variables: Any, state: Any, partial: Any, y: Any) -> Any:
        return jnp.mean((partial + variables["b"] - y) ** 2) / size

    def model(mode: str) -> IPUPipelineEstimatorSpec:
        return IPUPipelineEstimatorSpec(
            mode,
            computational_stages=[first, second],
            gradient_accumulation_count=ACCUMULATED,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer(), loss),
        )

    run = config("pipeline", 2 * ACCUMULATED, 2, save_checkpoints_secs=1000)
    estimator = IPUPipelineEstimator(model, config=run, init_fn=init)
    estimator.train(dealt, steps=2 * ACCUMULATED)
    estimator.train(dealt, steps=2 * ACCUMULATED)
    tell("pipeline files", [name for name in files("pipeline") if name.startswith("ckpt")])
    if rank == 0:
        tell("pipeline", whole(estimator))


def read_when_synchronized() -> None:
    """Fact distributed.mw_sync_on_read."""
    seen: list[float] = []

    class Sees(SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(float(run_context.session.state.state.state))

    def model(variables: Any, features: Any, state: Any, mode: str) -> IPUEstimatorSpec:
        loss = jnp.sum(variables * features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=optimizer(), state=state + features)

    estimator = IPUEstimator(
        model,
        config=config("state", 1, save_checkpoints_steps=1),
        init_fn=lambda key, features: (jnp.zeros(()), jnp.float32(rank + 1)),
    )
    data = [np.float32(rank + 1)] * 8 * replicas
    estimator.train(lambda: data, [Sees()], steps=1)
    if rank == 0:
        tell("state", estimator.get_variable_value("state"))
    estimator.train(lambda: data, [Sees()], steps=2)
    tell("own states", seen)


functions()
pipelines()
read_when_synchronized()
print(json.dumps(told), flush=True)
