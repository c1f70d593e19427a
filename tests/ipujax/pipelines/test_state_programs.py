"""Untrained state of pipelines, as programs have it: their texts, and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, StageOutput, pipeline
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.saving import ENGINES, again, compiled, same

VARIABLES = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
STATE = {"count": np.int32(0), "mean": np.zeros(3, np.float32)}
ELEMENTS = list(np.random.default_rng(0).normal(size=(8, 2, 3)).astype(np.float32))


def first(v: Any, s: Any, x: Any) -> Any:
    """Its backward task needs the mean as the same micro-batch found it."""
    mean = s["mean"] / 2 + x.mean(0)
    return StageOutput(jnp.tanh(x * v["a"]) * jnp.sin(s["mean"] * v["a"]), {**s, "mean": mean})


def second(v: Any, s: Any, h: Any) -> Any:
    return StageOutput(jnp.sum(h * v["b"]), {**s, "count": s["count"] + 1})


def optimizer(loss: Any) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(optax.sgd(0.1), loss)


def executable(engine: str, recompute: bool = False, **arguments: Any) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = recompute
    config.configure_ipu_system()

    def training(variables: Any, state: Any) -> Any:
        return pipeline(
            [first, second],
            4,
            optimizer_function=optimizer,
            variables=variables,
            state=state,
            **arguments,
        )

    return compiled(training, VARIABLES, STATE, engine=engine)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_text(recompute: bool, golden: Any) -> None:
    """Each stage has a loop variable for its leaf; a copy of the mean waits for the gradient."""
    made = executable("replay", recompute, inputs=ELEMENTS[:1], outfeed_mask=[True])
    golden(made.lowered.as_text())


@pytest.mark.parametrize("engine", ENGINES)
def test_saved_executables_have_it(engine: str, tmp_path: Path) -> None:
    source, sink = infeed(ELEMENTS), outfeed()
    original = executable(engine, infeed_queue=source, outfeed_queue=sink)
    queues = {source.name: infeed(ELEMENTS), sink.name: outfeed()}
    loaded = again(original, tmp_path, **queues)
    variables, _, state = original(VARIABLES, STATE)
    assert int(state["count"]) == 4
    same(loaded(VARIABLES, STATE)[::2], (variables, state))
