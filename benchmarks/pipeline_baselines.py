"""What a pipeline on one machine is measured against: steps written by hand in JAX.

Each is one training step over all micro-batches, gradients summed, then plain SGD.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.pipeline_models import LEARNING_RATE, STAGES, Model


class Steps:
    """A training step that keeps its parameters from call to call.

    Args:
      parameters: at the start; copied, since steps may donate them.
      step: parameters -> (new parameters, losses of the micro-batches).
    """

    def __init__(self, parameters: Any, step: Callable[[Any], tuple[Any, Any]]):
        self.parameters = jax.tree.map(jnp.array, parameters)
        self._step = step

    def __call__(self) -> Any:
        """The losses, once everything is ready."""
        self.parameters, losses = jax.block_until_ready(self._step(self.parameters))
        return losses

    def close(self) -> None:
        """Nothing to end; other contenders have processes."""


def scan(model: Model) -> Steps:
    """(a): one jit, a `lax.scan` over the stacked micro-batches.

    Parameters are donated, as usual; without, it is as fast to within 3 % on all three models.
    """
    xs, ys = (jnp.asarray(np.stack(column)) for column in zip(*model.data, strict=True))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters: Any, xs: Any, ys: Any) -> Any:
        def micro_batch(total: Any, element: Any) -> Any:
            loss, gradients = jax.value_and_grad(model.loss)(parameters, *element)
            return jax.tree.map(jnp.add, total, gradients), loss

        zeros = jax.tree.map(jnp.zeros_like, parameters)
        total, losses = jax.lax.scan(micro_batch, zeros, (xs, ys))
        return _sgd(parameters, total), losses

    return Steps(model.parameters, lambda parameters: step(parameters, xs, ys))


def unrolled(model: Model) -> Steps:
    """(b): one jit, the loop over the micro-batches unrolled."""
    data = [(jnp.asarray(x), jnp.asarray(y)) for x, y in model.data]

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters: Any, data: Any) -> Any:
        total, losses = jax.tree.map(jnp.zeros_like, parameters), []
        for x, y in data:
            loss, gradients = jax.value_and_grad(model.loss)(parameters, x, y)
            total = jax.tree.map(jnp.add, total, gradients)
            losses.append(loss)
        return _sgd(parameters, total), jnp.stack(losses)

    return Steps(model.parameters, lambda parameters: step(parameters, data))


def stages(model: Model) -> Steps:
    """(c): a Python loop of jitted stage calls, as tuned by hand.

    A forward call returns its vjp, residuals included; a backward call adds its gradients to the
    donated sums. Equal stages share an executable.
    """
    data = [(jnp.asarray(x), jnp.asarray(y)) for x, y in model.data]
    one = jnp.float32(1)

    def step(parameters: Any) -> Any:
        totals, losses = list(_zeros(parameters)), []
        for x, y in data:
            backs: list[Any] = []
            for number in range(STAGES):
                part, has_input = model.parts[number], number > 0
                x, back = _forward(part, has_input, parameters[number], x, y)
                backs.append(back)
            losses.append(x)
            cotangent: Any = one
            for number in reversed(range(STAGES)):
                totals[number], cotangent = _backward(totals[number], backs.pop(), cotangent)
        return _update(parameters, totals), losses

    return Steps(model.parameters, step)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _forward(part: Any, has_input: bool, own: Any, x: Any, y: Any) -> Any:
    if has_input:
        return jax.vjp(lambda own, x: part(own, x, y), own, x)
    return jax.vjp(lambda own: part(own, x, y), own)


@functools.partial(jax.jit, donate_argnums=0)
def _backward(total: Any, back: Any, cotangent: Any) -> Any:
    gradients, *cotangents = back(cotangent)
    return jax.tree.map(jnp.add, total, gradients), cotangents[0] if cotangents else None


@jax.jit
def _zeros(parameters: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, parameters)


def _sgd(parameters: Any, gradients: Any) -> Any:
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients)


_update = jax.jit(_sgd, donate_argnums=0)
