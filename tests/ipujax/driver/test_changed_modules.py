"""Modules of `flax.nnx` among the arguments of a compiled function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from tests.ipujax.feeding import configure

nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
X = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def build_model() -> tuple[Any, Any]:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Linear(3, 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)
    )
    return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


def train(model: Any, optimizer: Any, x: Any) -> Any:
    loss, grads = nnx.value_and_grad(lambda model, x: jnp.mean((model(x) - 1) ** 2))(model, x)
    optimizer.update(model, grads)
    return loss


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "in place" in r.getMessage()]


def test_changes_that_the_caller_does_not_get_are_named(caplog: pytest.LogCaptureFixture) -> None:
    configure(1)
    model, optimizer = build_model()
    run = ipu.compile(train)
    assert run(model, optimizer, X) == run(model, optimizer, X)  # as under jax.jit
    (warning,) = warnings_of(caplog)
    assert "`train` changes model.layers[0].bias.value, " in warning
    assert "nnx.update(module, state)" in warning


def test_state_that_a_function_returns_is_trained(caplog: pytest.LogCaptureFixture) -> None:
    configure(1)

    @ipu.compile
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss = train(model, optimizer, x)
        return nnx.state((model, optimizer)), loss

    modules, reference = build_model(), build_model()
    plain = nnx.jit(train)
    for _ in range(3):
        state, loss = step(*modules, X)
        nnx.update(modules, state)
        np.testing.assert_allclose(loss, plain(*reference, X), rtol=1e-5)
    trained, expected = (nnx.state(model, nnx.Param) for model, _ in (modules, reference))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), trained, expected)
    assert not warnings_of(caplog)


def test_modules_that_are_only_read_are_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    configure(1)
    model, _ = build_model()
    model.eval()
    np.testing.assert_allclose(
        ipu.compile(lambda model, x: model(x))(model, x=X), model(X), rtol=1e-5
    )
    assert not warnings_of(caplog)
