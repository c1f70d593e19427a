"""`check_pipeline` and untrained state: compared too, micro-batch after micro-batch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    StageOutput,
    check_pipeline,
)
from tests.numbers import use_ipus

VARIABLES = {"a": np.float32([1, 2, 3]), "b": np.float32([3, 1, 2])}
STATE = {"mean": np.zeros(3, np.float32), "count": np.int32(0)}


def first(v: Any, s: Any, x: Any) -> Any:
    mean = 0.5 * s["mean"] + 0.5 * x.mean(0)
    return StageOutput((x - s["mean"]) * v["a"], {**s, "mean": mean})


def second(v: Any, s: Any, h: Any) -> Any:
    count = s["count"] + 1
    loss = jnp.mean((h * v["b"]) ** 2) * count + jnp.sum(s["mean"])
    return StageOutput(loss, {**s, "count": count})


def whole(v: Any, s: Any, x: Any) -> Any:
    between = first(v, s, x)
    loss, after = second(v, between.state, between.outputs)
    return StageOutput(loss, after)


def checked(replicas: int = 1, **more: Any) -> Any:
    use_ipus(2 * replicas)
    arguments: dict[str, Any] = {
        "optimizer_function": lambda loss: OptimizerFunctionOutput(optax.sgd(0.1), loss)
    }
    batch = np.random.default_rng(0).normal(size=(4 * replicas, 2, 3)).astype(np.float32)
    arguments |= {"variables": VARIABLES, "state": STATE, "batch": batch} | more
    return check_pipeline([first, second], 4, **arguments)


def names(check: Any) -> list[str]:
    return [row.name for row in check.rows]


@pytest.mark.exhaustive
def test_state_is_compared_for_all_schedules() -> None:
    check = checked(schedules=list(PipelineSchedule))
    check.raise_if_different()
    assert names(check).count("state ['mean']") == 3
    checked(reference=whole).raise_if_different()
    checked(optimizer_function=None).raise_if_different()


def test_replicas_have_states_of_their_own() -> None:
    checked(replicas=2).raise_if_different()


def test_a_reference_with_another_state_differs() -> None:
    def other(v: Any, s: Any, x: Any) -> Any:
        loss, after = whole(v, s, x)
        return StageOutput(loss, {**after, "count": after["count"] + 1})

    check = checked(reference=other)
    assert not check.ok
    assert "state ['count']" in " ".join(check.findings)


def test_a_whole_batch_has_no_state_to_compare() -> None:
    check = checked(reference=lambda v, s, x: jnp.sum(v["a"]) + jnp.sum(x), whole_batch=True)
    assert "state ['count']" not in names(check)
