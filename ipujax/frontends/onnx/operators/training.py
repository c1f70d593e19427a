"""Operators of `ai.onnx.preview.training`: steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Step = Callable[..., tuple[Array, ...]]
"""The new variable and the new states, from the variable, its gradient and its states."""


def _each(step: Step, count: int, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Steps of several variables: all variables, all gradients, all first states, and so on.

    Args:
      step: of one variable.
      count: how many arrays a variable has.
      arrays: those of all variables.
    """
    if len(arrays) % count:
        raise check.refuse(
            f"the optimizer is given {len(arrays)} arrays",
            f"give it {count} for each variable: itself, its gradient, its states",
        )
    number = len(arrays) // count
    steps = [step(*arrays[i::number]) for i in range(number)]
    return tuple(array for kind in zip(*steps, strict=True) for array in kind)


@operator("ai.onnx.preview.training.Adagrad")
def adagrad(
    rate: Array,
    time: Array,
    *arrays: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    def step(x: Array, gradient: Array, squares: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        squares = squares + jnp.square(gradient)
        reduced = rate / (1 + time * decay_factor)
        return x - reduced * gradient / (jnp.sqrt(squares) + epsilon), squares

    return _each(step, 3, arrays)


@operator("ai.onnx.preview.training.Adam")
def adam(
    rate: Array,
    time: Array,
    *arrays: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    count = jnp.asarray(time, jnp.float32)
    ran = jnp.where(count > 0, count, 1)
    adjusted = rate * jnp.where(count > 0, jnp.sqrt(1 - beta**ran) / (1 - alpha**ran), 1)

    def step(x: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        mean = alpha * mean + (1 - alpha) * gradient
        square = beta * square + (1 - beta) * jnp.square(gradient)
        x = x - (adjusted * mean / (jnp.sqrt(square) + epsilon)).astype(x.dtype)
        return (1 - norm_coefficient_post) * x, mean, square

    return _each(step, 4, arrays)


@operator("ai.onnx.preview.training.Momentum")
def momentum(
    rate: Array,
    time: Array,
    *arrays: Array,
    alpha: float = 0.0,
    beta: float = 1.0,
    mode: str = "standard",
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    if mode not in ("standard", "nesterov"):
        raise check.refuse(f"the mode of Momentum is {mode!r}", "use standard or nesterov")
    share = jnp.where(jnp.asarray(time) > 0, beta, 1)

    def step(x: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        velocity = (alpha * velocity + share * gradient).astype(x.dtype)
        move = gradient + alpha * velocity if mode == "nesterov" else velocity
        return x - rate * move, velocity

    return _each(step, 3, arrays)


@operator("ai.onnx.preview.training.Gradient", folded=False)
def gradient(*inputs: Any, **attributes: Any) -> Any:
    raise check.refuse(
        "Gradient differentiates the graph that it is in",
        "leave it out: jax.grad of the model's apply does this",
    )
