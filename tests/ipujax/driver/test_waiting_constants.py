"""Constants join the kernel that reads them first; what is made of them follows, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from tests.numbers import same, use_ipus

X = np.float32([1, 2, 3, 4])
Y = np.float32([5, 6, 7, 8])


def shard(number: int) -> Any:
    return ipu.scopes.ipu_shard(number)


def read_earlier_than_what_it_is_made_of(x: Any, y: Any) -> Any:
    with shard(0):
        late = y * 2
    with shard(1):
        positions = jnp.arange(4.0)
        doubled = positions * 2
        return late + positions, x * doubled


def returned_after_its_source_was_read(x: Any, y: Any) -> Any:
    with shard(0):
        late = y * 2
    with shard(1):
        positions = jnp.arange(4.0)
        doubled = positions * 2
        return late + positions, doubled


def wanted_elsewhere_after_its_source_was_read(x: Any, y: Any) -> Any:
    with shard(0):
        late = y * 2
    with shard(1):
        positions = jnp.arange(4.0)
        doubled = positions * 2
        total = late + positions
    with shard(0):
        return total, x + doubled


def three_deep_and_read_twice(x: Any, y: Any) -> Any:
    with shard(1):
        one = jnp.arange(4.0)
        two = jnp.cos(one)
        three = two + one
    with shard(0):
        late = jnp.sin(y) * 3
    with shard(1):
        first = late + one
        second = x * three
        third = first * two
    with shard(0):
        return first, second, third, three - late


def in_a_loop_body(x: Any, y: Any) -> Any:
    def step(carried: Any, row: Any) -> Any:
        with shard(0):
            late = carried * 2
        with shard(1):
            positions = jnp.arange(4.0)
            doubled = positions * 2
            return late + positions, row * doubled

    return lax.scan(step, x, jnp.stack([x, y]))


PROGRAMS = [
    read_earlier_than_what_it_is_made_of,
    returned_after_its_source_was_read,
    wanted_elsewhere_after_its_source_was_read,
    three_deep_and_read_twice,
    in_a_loop_body,
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_numbers_are_those_of_jit(fn: Callable[..., Any], engine: str) -> None:
    use_ipus(2)
    same(ipu.compile(fn, engine=engine)(X, Y), jax.jit(fn)(X, Y), exact=False)


def test_a_long_chain_of_constants() -> None:
    use_ipus(2)

    def fn(x: Any) -> Any:
        with shard(1):
            constant = jnp.arange(4)
            for _ in range(1200):
                constant = constant + 1
        with shard(0):
            return x + constant

    lowered = ipu.compile(fn).lower(np.int32([0, 0, 0, 0]))
    assert "[numbers in order, add, add, add, add, add and 1195 more]" in lowered.as_text()
