"""Functions of many arguments: calls on replay, and first calls, against `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, row

CALLS = (100, 1000, 4000)
LEAVES = (3000, 6000)


def rows() -> list[Row]:
    """Returns the rows of calls, then those of first calls."""
    return [*map(_call_row, CALLS), *map(_first_call_row, LEAVES)]


def _add_one(leaves: list[Any]) -> list[Any]:
    return [leaf + 1 for leaf in leaves]


def _leaves(count: int) -> list[Any]:
    import jax.numpy as jnp

    return [jnp.full((8,), float(number)) for number in range(count)]


def _call_row(count: int) -> Row:
    import jax

    import ipujax as ipu

    leaves = _leaves(count)
    ours, plain = ipu.compile(_add_one, engine="replay"), jax.jit(_add_one)

    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(function(leaves))

    what = f"call on replay, {count} arguments / jax.jit"
    return row(what, 1.5, call(ours), call(plain), pairs=15)


def _first_call_row(count: int) -> Row:
    import jax

    import ipujax as ipu

    leaves = _leaves(count)

    def ours() -> None:
        jax.block_until_ready(ipu.compile(lambda xs: _add_one(xs))(leaves))

    def plain() -> None:
        jax.block_until_ready(jax.jit(lambda xs: _add_one(xs))(leaves))

    what = f"first call, {count} arguments, compilation included / jax.jit"
    return row(what, 1.2, ours, plain, pairs=3)
