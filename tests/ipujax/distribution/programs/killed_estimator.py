"""An estimator whose workers end in the middle of a training, if they are told to."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipujax.ipu_session_run_hooks import SessionRunHook

folder, last = sys.argv[1], int(sys.argv[2])
rank = ipu.popdist.getInstanceIndex()
data = np.random.default_rng(rank).normal(size=(40, 4, 3)).astype(np.float32)


class DiesAt(SessionRunHook):
    def after_run(self, run_context: Any, run_values: Any) -> None:
        if rank == 1 and run_context.session.global_step == last:
            os.kill(os.getpid(), signal.SIGKILL)


def model(variables: Any, features: Any, mode: str, state: Any) -> IPUEstimatorSpec:
    loss = jnp.mean((features @ variables["w"] - 1) ** 2)
    return IPUEstimatorSpec(
        mode, loss=loss, train_op=optax.sgd(0.05, momentum=0.9), state=state + features.mean()
    )


config = ipu.ipu_run_config.RunConfig(
    model_dir=folder,
    save_checkpoints_steps=3,
    train_distribute=ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy(),
)
estimator = IPUEstimator(
    model, config=config, init_fn=lambda key, features: ({"w": jnp.ones((3, 1))}, jnp.zeros(()))
)
estimator.train(lambda: data, [DiesAt()], max_steps=12)
names = ("w", "state", "global_step")
told = {name: np.asarray(estimator.get_variable_value(name)).tolist() for name in names}
print(json.dumps({"index": rank, **told}), flush=True)
