"""Optimizer operators of `ai.onnx.preview.training`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Step = Callable[..., tuple[Array, ...]]
"""A function from a variable, its gradient and its states to the new variable and states."""


def _update_each_variable(update: Step, count: int, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Updates several variables: all variables come first, then all gradients, then all states.

    Args:
      update: updates one variable.
      count: the number of arrays of each variable.
      arrays: the arrays of all variables.
    """
    if len(arrays) % count:
        raise check.value_error(
            f"the optimizer is given {len(arrays)} arrays",
            f"give it {count} for each variable: itself, its gradient, its states",
        )
    number = len(arrays) // count
    updated = [update(*arrays[i::number]) for i in range(number)]
    return tuple(array for arrays_of_kind in zip(*updated, strict=True) for array in arrays_of_kind)


@operator("ai.onnx.preview.training.Adagrad")
def adagrad(
    rate: Array,
    time: Array,
    *arrays: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    def update_by_adagrad(x: Array, gradient: Array, squares: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        squares = squares + jnp.square(gradient)
        decayed_rate = rate / (1 + time * decay_factor)
        return x - decayed_rate * gradient / (jnp.sqrt(squares) + epsilon), squares

    return _update_each_variable(update_by_adagrad, 3, arrays)


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
    steps_done = jnp.where(count > 0, count, 1)
    corrected_rate = rate * jnp.where(
        count > 0, jnp.sqrt(1 - beta**steps_done) / (1 - alpha**steps_done), 1
    )

    def update_by_adam(x: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        mean = alpha * mean + (1 - alpha) * gradient
        square = beta * square + (1 - beta) * jnp.square(gradient)
        x = x - (corrected_rate * mean / (jnp.sqrt(square) + epsilon)).astype(x.dtype)
        return (1 - norm_coefficient_post) * x, mean, square

    return _update_each_variable(update_by_adam, 4, arrays)


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
        raise check.value_error(f"the mode of Momentum is {mode!r}", "use standard or nesterov")
    gradient_factor = jnp.where(jnp.asarray(time) > 0, beta, 1)

    def update_by_momentum(x: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
        gradient = norm_coefficient * x + gradient
        velocity = (alpha * velocity + gradient_factor * gradient).astype(x.dtype)
        move = gradient + alpha * velocity if mode == "nesterov" else velocity
        return x - rate * move, velocity

    return _update_each_variable(update_by_momentum, 3, arrays)


@operator("ai.onnx.preview.training.Gradient", folded=False)
def gradient(*inputs: Operand, **attributes: object) -> Operand:
    raise check.value_error(
        "Gradient differentiates the graph that it is in",
        "leave it out: jax.grad of the model's apply does this",
    )
