"""What calling a compiled function costs, against `jax.jit` of the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import ipujax as ipu
from benchmarks.measure import Row, row


def rows() -> list[Row]:
    """Twenty small arguments, where the call is everything; and 5 ms of work."""
    return [*_small(), _large()]


def _small() -> list[Row]:
    def function(*xs: Any) -> list[Any]:
        return [x + 1 for x in xs]

    arguments = [jnp.ones(4) for _ in range(20)]
    ours, plain = ipu.compile(function), jax.jit(function)
    ahead, plain_ahead = (fn.lower(*arguments).compile() for fn in (ours, plain))

    def small(what: str, own: Callable[..., Any], other: Callable[..., Any]) -> Row:
        return row(
            what,
            1.5,
            lambda: jax.block_until_ready(own(*arguments)),
            lambda: jax.block_until_ready(other(*arguments)),
            pairs=31,
            times=300,
        )

    return [
        small("call, 20 small arguments / jax.jit", ours, plain),
        small("call of an executable, 20 small arguments / JAX's", ahead, plain_ahead),
    ]


def _large() -> Row:
    def function(x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ x)
        return x

    argument = jnp.ones((600, 600)) / 600
    ours, plain = ipu.compile(function), jax.jit(function)
    return row(
        "call, 5 ms and more / jax.jit",
        1.02,
        lambda: jax.block_until_ready(ours(argument)),
        lambda: jax.block_until_ready(plain(argument)),
        pairs=61,
        times=4,
    )
