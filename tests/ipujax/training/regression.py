"""What tests of training share: a small model, its data, and the same in plain JAX and optax."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax.training import History, Run, Training, TrainState
from tests.ipujax.feeding import configure

Element = tuple[np.ndarray, np.ndarray]


def batches(count: int | None = None) -> Iterator[Element]:
    """Batches of a linear problem, so many or without end."""
    random = np.random.default_rng(0)
    for _ in itertools.count() if count is None else range(count):
        x = random.normal(size=(4, 3)).astype(np.float32)
        yield x, x @ np.float32([1.0, -2.0, 0.5])


def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean squared error of a batch."""
    return jnp.mean((x @ weights - y) ** 2)


def first_stage(variables: Any, x: jax.Array, y: jax.Array) -> Any:
    """The same model, times one, in two stages."""
    return x * variables["scale"], y


def last_stage(variables: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The loss of the model in two stages."""
    return loss_of(variables["weights"], x, y)


STAGED = {"scale": np.ones(3, np.float32), "weights": np.zeros(3, np.float32)}


def staged_loss(variables: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Both stages as one function."""
    return last_stage(variables, *first_stage(variables, x, y))


def plain(
    optimizer: Any,
    steps: int,
    count: int = 1,
    scale: float = 1.0,
    *,
    loss: Any = loss_of,
    variables: Any = None,
) -> tuple[Any, np.ndarray]:
    """Variables and losses of a plain loop; `count` gradients are added up, times `scale`."""
    source = batches()
    variables = np.zeros(3, np.float32) if variables is None else variables
    state = optimizer.init(variables)
    gradient = jax.jit(jax.value_and_grad(loss))
    losses: list[float] = []
    for _ in range(steps):
        total = jax.tree.map(np.zeros_like, variables)
        for element in itertools.islice(source, count):
            own, found = gradient(variables, *element)
            losses.append(float(own))
            total = jax.tree.map(lambda a, b: a + scale * b, total, found)
        updates, state = optimizer.update(total, state, variables)
        variables = optax.apply_updates(variables, updates)
    return variables, np.array(losses)


class Watch(History):
    """Keeps what it is told."""

    def __init__(self, stop_at: int | None = None):
        super().__init__()
        self.told: list[str] = []
        self.stop_at = stop_at

    def begin(self, run: Run) -> None:
        super().begin(run)
        self.told.append("begin")

    def before_run(self, run: Run) -> None:
        self.told.append("before")

    def after_run(self, run: Run, results: Any) -> None:
        self.told.append(f"after {run.state.step}")
        super().after_run(run, results)
        if self.stop_at is not None and run.done >= self.stop_at:
            run.request_stop()

    def end(self, run: Run) -> None:
        self.told.append("end")


def trained(
    training: Training, steps: int | None, data: Any = batches, variables: Any = None
) -> tuple[TrainState, Watch]:
    """A run from the beginning."""
    watch = Watch()
    start = training.init(np.zeros(3, np.float32) if variables is None else variables)
    return training.fit(start, data, steps, [watch]), watch


def close(mine: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Fails unless two pytrees hold the same numbers up to rounding."""
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def replicas(count: int) -> None:
    """A device on which a program on one IPU runs so often."""
    configure(count)
