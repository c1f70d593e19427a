"""Arithmetic with constants costs what XLA's algebraic simplifier leaves of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering.machine import IPU2, Operation
from lowering.machine.kernels import Item
from lowering.machine.primitives import cost_of_operation, elementwise_chain_cost
from tests.lowering.machine.samples import listed

# 384 elements on each of an IPU2's tiles, 64 on each worker.
HALVES = jax.ShapeDtypeStruct((1472, 384), jnp.float16)
SINGLES = jax.ShapeDtypeStruct((1472, 384), jnp.float32)
UNSIGNED = jax.ShapeDtypeStruct((1472, 384), jnp.uint32)
SIGNED = jax.ShapeDtypeStruct((1472, 384), jnp.int32)


def operations(fn: Callable[..., Any], *args: Any) -> list[Operation]:
    items = [item for item in listed(fn, *args).items if isinstance(item, Item)]
    return [operation for item in items for operation in item.operations]


def compute(fn: Callable[..., Any], *args: Any) -> float:
    """Of the last operation."""
    return cost_of_operation(operations(fn, *args)[-1], IPU2).phases[0].compute


@pytest.mark.parametrize(
    ("fn", "x", "expected"),
    [
        (lambda x: x / 2, HALVES, 6 * (20 + 16 * 2) + 11),
        (lambda x: x / 3, SINGLES, 6 * (20 + 32 * 2) + 11),
        (lambda x: x**2.0, HALVES, 6 * (17 + 16 * 2) + 20),
        (lambda x: x**0.5, SINGLES, 6 * (17 + 32 * 10) + 20),
        (lambda x: x**-0.5, SINGLES, 6 * (17 + 32 * 8) + 20),
        (lambda x: x**-1.0, HALVES, 6 * (17 + 16 * 15) + 20),
        (lambda x: x**3.0, SINGLES, 6 * (29 + 2 * 32 * 3) + 11),
        (lambda x: x**-3.0, SINGLES, 6 * (29 + 2 * 32 * 3 + 32 * 6) + 11),
        (lambda x: jnp.power(x, 1.5), SINGLES, 6 * (20 + 64 * 312) + 11),
        (lambda x: x / 0.0, SINGLES, 6 * (20 + 32 * 6) + 11),
        (lambda x: 2 / x, HALVES, 6 * (20 + 32 * 8) + 11),
        (lambda x: lax.div(x, jnp.uint32(8)), UNSIGNED, 6 * (20 + 64 * 7) + 11),
        (lambda x: lax.rem(x, jnp.uint32(8)), UNSIGNED, 6 * (20 + 64 * 6) + 11),
        (lambda x: lax.rem(x, jnp.uint32(6)), UNSIGNED, 6 * (20 + 64 * 280) + 11),
        (lambda x: lax.div(x, jnp.int32(8)), SIGNED, 6 * (20 + 64 * 277) + 11),
        (lambda x: x / jnp.full(x.shape, 2, x.dtype), HALVES, 6 * (20 + 16 * 2) + 11),
        (lambda x: x // 8, UNSIGNED, 6 * (20 + 64 * 7) + 11),
    ],
)
def test_costs(fn: Callable[..., Any], x: Any, expected: float) -> None:
    assert compute(fn, x) == expected


def test_a_body_that_is_called_twice_has_the_numbers_of_each_call() -> None:
    half = jax.jit(lambda x, y: x / y)
    found = operations(lambda x: half(half(half(x, 2.0), x), 3.0), SINGLES)
    divisions = [operation for operation in found if operation.name == "div"]
    assert [operation.literals for operation in divisions] == [(None, 2.0), (), (None, 3.0)]


def test_numbers_are_kept_where_they_matter_only() -> None:
    found = operations(lambda x: x * 0.5 + 1, SINGLES)
    assert [operation.literals for operation in found] == [(), ()]


def test_chains_are_simplified_too() -> None:
    def scaled(fn: Callable[[Any], Any]) -> Any:
        found = elementwise_chain_cost(operations(lambda x: jnp.exp(fn(x)), SINGLES), IPU2)
        return found.phases, found.vertices

    assert scaled(lambda x: x / 2) == scaled(lambda x: x * 0.5)


def test_no_elements_take_no_time() -> None:
    nothing = jax.ShapeDtypeStruct((0, 4), jnp.float32)
    for fn in (lambda x: x + 1.0, lambda x: x**2.5, lambda x: jnp.maximum(2.0, x)):
        assert all(
            cost_of_operation(operation, IPU2).moves_nothing
            for operation in operations(fn, nothing)
        )
