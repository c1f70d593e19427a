"""Conditions over the state of several IPUs become selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering import Options, marks
from lowering.jaxprs import jaxpr
from lowering.passes import select_cheap_branches
from tests.lowering.samples import trace

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def on_two_ipus(branches: list[Callable[..., Any]]) -> Callable[..., Any]:
    def function(index: jax.Array, x: jax.Array) -> Any:
        with marks.place_on_shard(0):
            a = x + 1
        with marks.place_on_shard(1):
            b = x * 2
        return lax.switch(index, branches, a, b)

    return function


def names_of(closed: jaxpr.ClosedJaxpr) -> set[str]:
    return {eqn.primitive.name for eqn in closed.jaxpr.eqns}


CHEAP = [
    lambda a, b: (a, b, jnp.float32(0)),
    lambda a, b: (a - b, jnp.log(b), jnp.sum(a)),
    lambda a, b: (b, jax.nn.relu(a), jnp.max(b)),
]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("index", [-1, 0, 1, 2, 5])
def test_the_branch_is_selected(count: int, index: int) -> None:
    function = on_two_ipus(CHEAP[:count])
    closed = select_cheap_branches(trace(function, np.int32(index), X), Options())
    assert "cond" not in names_of(closed)
    results = jaxpr.run_equations(closed.jaxpr, closed.consts, [np.int32(index), X])
    for result, expected in zip(results, function(np.int32(index), X), strict=True):
        np.testing.assert_array_equal(result, expected)  # a NaN of the other branch is not seen


def test_branches_with_work_stay() -> None:
    function = on_two_ipus([lambda a, b: a @ b.T, lambda a, b: b @ a.T])
    assert "cond" in names_of(select_cheap_branches(trace(function, np.int32(0), X), Options()))


def test_faults_of_a_branch_that_is_not_taken_are_not_reported() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.floating_point_behaviour.div0 = True
    config.configure_ipu_system()

    def function(index: jax.Array, x: jax.Array) -> Any:
        return on_two_ipus([lambda a, b: a + b, lambda a, b: 1 / (a - a)])(index, x)

    compiled = ipu.compile(function)
    np.testing.assert_allclose(compiled(np.int32(0), X), 3 * X + 1, rtol=1e-6)
    with pytest.raises(FloatingPointError):
        compiled(np.int32(1), X)


def test_a_program_of_one_ipu_stays() -> None:
    closed = trace(lambda i, x: lax.switch(i, CHEAP, x, x), np.int32(0), X)
    assert select_cheap_branches(closed, Options()) is closed
