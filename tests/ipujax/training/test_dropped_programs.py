"""Programs are gone once nobody holds them, and with them what XLA has compiled."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.loops import repeat
from ipujax.training import Pipeline, Training
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.training.regression import STAGED, first_stage, last_stage, loss_of, trained

PROGRAMS = 3


def run_loop(engine: str) -> None:
    source, sink = infeed([np.float32(k) for k in range(6)]), outfeed()

    def body(total: Any, x: Any) -> Any:
        sink.enqueue(x)
        return total + x

    total = ipu.compile(lambda t: repeat(6, body, [t], source), engine=engine)(np.float32(0))
    assert float(jax.tree.leaves(total)[0]) == 15


def train(engine: str) -> None:
    trained(Training(loss_of, optax.adam(0.1), steps_per_loop=3, engine=engine), 6)


def train_a_pipeline(engine: str) -> None:
    configure(2)
    stages = Pipeline([first_stage, last_stage])
    training = Training(stages, optax.sgd(0.1), accumulation=4, engine=engine)
    trained(training, 4, variables=STAGED)


@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("run", [run_loop, train, train_a_pipeline])
def test_dropped_programs_leave_no_executable(
    run: Callable[[str], None], engine: str, little_garbage: None
) -> None:
    client = jax.local_devices()[0].client
    before = len(client.live_executables())
    for _ in range(PROGRAMS):
        run(engine)
    assert len(client.live_executables()) > before
    jax.clear_caches()
    gc.collect()
    assert len(client.live_executables()) <= before
