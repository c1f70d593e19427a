"""What an estimator costs beside the loop that it runs."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from benchmarks.measure import Row, row

STEPS, PER_LOOP = 10_000, 100
WIDTH = 320  # makes a step of about 100 us
ELEMENT = np.ones((8, WIDTH), np.float32)


def rows() -> list[Row]:
    """10 000 steps of about 100 us, and the memory of ten times as many."""
    plain = _estimator()
    kept = _estimator(save_checkpoints_steps=2_000)
    hooks = [ipu.ipu_session_run_hooks.SessionRunHook()]
    return [
        row(
            "estimator.train, 10 000 steps of 100 us / the same by loops.repeat",
            1.1,
            lambda: plain.train(_data, steps=STEPS),
            _loop(),
            pairs=5,
        ),
        row(
            "the same with a hook and checkpoints every 2 000 steps / without",
            1.1,
            lambda: kept.train(_data, hooks, steps=STEPS),
            lambda: plain.train(_data, steps=STEPS),
            pairs=5,
        ),
        _memory(),
    ]


def _loss(variables: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ variables["first"]) @ variables["second"])


def _variables() -> Any:
    return {"first": jnp.eye(WIDTH), "second": jnp.eye(WIDTH)}


def _data() -> Iterator[Any]:
    return itertools.repeat(ELEMENT)


def _estimator(**options: Any) -> Any:
    def model_fn(variables: Any, features: Any, mode: str) -> Any:
        loss = _loss(variables, features)
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=optax.sgd(1e-4))

    never: dict[str, Any] = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    config = ipu.ipu_run_config.RunConfig(
        ipu.ipu_run_config.IPURunConfig(iterations_per_loop=PER_LOOP),
        model_dir=tempfile.mkdtemp(),
        **(options or never),
    )
    return ipu.ipu_estimator.IPUEstimator(
        model_fn, config=config, init_fn=lambda key, features: _variables()
    )


def _loop() -> Callable[[], Any]:
    """The training loop as one writes it by hand."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(_data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    restart = infeed.initializer
    optimizer = optax.sgd(1e-4)

    def step(variables: Any, state: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)(variables, x)
        outfeed.enqueue(loss)
        updates, state = optimizer.update(gradients, state, variables)
        return optax.apply_updates(variables, updates), state

    @ipu.compile
    def run(variables: Any, state: Any) -> Any:
        return ipu.loops.repeat(PER_LOOP, step, [variables, state], infeed)

    def train() -> Any:
        restart()
        variables = _variables()
        carried = variables, optimizer.init(variables)
        for _ in range(STEPS // PER_LOOP):
            carried = run(*carried)
            np.mean(outfeed.dequeue())
        return jax.block_until_ready(carried)

    return train


def _memory() -> Row:
    """Peak memory of a process that trains, in MiB."""
    long, short = (_peak(steps) for steps in (100_000, 1_000))
    what = "peak memory of estimator.train, 100 000 / 1 000 steps"
    return Row(what, long / short, 1.05, f"{long:.0f} MiB / {short:.0f} MiB")


def _peak(steps: int) -> float:
    code = (
        "import numpy as np\n"
        "from benchmarks import estimators\n"
        "estimators.WIDTH = 16\n"
        "estimators.ELEMENT = np.ones((8, 16), np.float32)\n"
        f"estimators._estimator().train(estimators._data, steps={steps})\n"
        # Not getrusage: its maximum begins with the memory of the process that forked this one.
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    return float(done.stdout) / 1024
