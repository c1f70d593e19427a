"""Dropout, against the same written with JAX, which keeps its mask for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import ipujax as ipu
from benchmarks.measure import Row, row

SHAPE, RATE = (1024, 1024), 0.1


def rows() -> list[Row]:
    """Forward, forward and backward, and with the device's seed."""
    x, key = jnp.ones(SHAPE), jax.random.key(0)
    forward, plain = jax.jit(ours), jax.jit(baseline)
    trained, plainly = jax.jit(trained_with(ours)), jax.jit(trained_with(baseline))
    seeded = ipu.compile(trained_with(lambda x, _: ipu.rand_ops.dropout(x, RATE)))
    return [
        _row("dropout / jax.random.bernoulli", forward, plain, x, key),
        _row("dropout and gradient / the same", trained, plainly, x, key),
        _row("dropout and gradient, device's seed / the same", seeded, plainly, x, key),
    ]


def ours(x: Any, key: Any) -> Any:
    """The operator."""
    return ipu.rand_ops.dropout(x, RATE, key=key)


def baseline(x: Any, key: Any) -> Any:
    """What flax's layer does."""
    keep = 1 - RATE
    return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0)


def trained_with(dropout: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A loss that needs its input again, and its gradient."""
    return lambda x, key: jax.value_and_grad(lambda x: jnp.sum(jnp.sin(dropout(x, key))))(x)


def _row(what: str, mine: Callable[..., Any], theirs: Callable[..., Any], x: Any, key: Any) -> Row:
    return row(
        what,
        1.1,
        lambda: jax.block_until_ready(mine(x, key)),
        lambda: jax.block_until_ready(theirs(x, key)),
        pairs=31,
    )
