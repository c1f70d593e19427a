"""Arguments whose rows several IPUs read, in parts; random programs compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering import RowSplit, marks, split_stacked_arguments
from lowering.jaxprs import jaxpr
from tests.lowering.samples import jaxpr_text

ROWS, WIDTH = 6, 3
SPLIT = RowSplit((0, 2, 4, 6), (0, 1, 2))
STACK = jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")


def read_rows(stack: jax.Array, step: int = 2) -> list[jax.Array]:
    """Reads slices as the stages of a pipeline do."""
    parts: list[jax.Array] = []
    for start in range(0, ROWS, step):
        with jax.named_scope(marks.write_mark(marks.ROWS, str(start // 2))):
            parts.append(lax.slice_in_dim(stack, start, start + step))
    return parts


def split_always(split: RowSplit) -> bool:
    return split.has_equal_parts


def run(closed: jaxpr.ClosedJaxpr, arrays: list[Any]) -> list[Any]:
    return jaxpr.run_equations(closed.jaxpr, closed.consts, arrays)


def parts_of(arrays: list[Any], splits: tuple[RowSplit | None, ...]) -> list[Any]:
    flat: list[Any] = []
    for array, split in zip(arrays, splits, strict=True):
        ranges = [slice(None)] if split is None else [slice(*rows) for rows in split.ranges]
        flat += [array[rows] if split else array for rows in ranges]
    return flat


def check_numbers(function: Callable[..., Any], arrays: list[Any]) -> tuple[Any, ...]:
    """Compares a split program with the whole one; returns the splits of its results."""
    closed = jax.make_jaxpr(function)(*arrays)
    program = split_stacked_arguments(closed, split_always)
    assert program.arguments[0] == SPLIT
    parts = run(program.closed, parts_of(arrays, program.arguments))
    wanted = parts_of(run(closed, arrays), program.results)
    for result, expected in zip(parts, wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)
    return program.results


def update(stack: jax.Array, momentum: jax.Array, rate: jax.Array) -> Any:
    gradient = jnp.concatenate([jnp.tanh(rows) for rows in read_rows(stack)])
    norm = jnp.sqrt(jnp.sum(gradient**2))
    momentum = 0.9 * momentum + gradient / jnp.where(norm > 1, norm, 1.0)
    return stack - rate * momentum, momentum, norm


def test_the_update_of_a_stacked_parameter(golden: Any) -> None:
    closed = jax.make_jaxpr(update)(STACK, STACK, jnp.float32(0.1))
    program = split_stacked_arguments(closed, split_always)
    assert program.arguments == (SPLIT, SPLIT, None)
    assert program.results == (SPLIT, SPLIT, None)
    golden(jaxpr_text(program.closed))


@pytest.mark.parametrize("step", [1, 2])
def test_numbers_of_an_update(step: int) -> None:
    def function(stack: jax.Array, momentum: jax.Array) -> Any:
        gradient = jnp.concatenate([rows * 2 for rows in read_rows(stack, step)])
        return stack - gradient, momentum + gradient

    rng = np.random.default_rng(0)
    arrays = [np.float32(rng.normal(size=(ROWS, WIDTH))) for _ in range(2)]
    assert check_numbers(function, arrays) == (SPLIT, SPLIT)


def test_nothing_is_split_that_must_not_be() -> None:
    closed = jax.make_jaxpr(update)(STACK, STACK, jnp.float32(0.1))
    program = split_stacked_arguments(closed, lambda split: False)
    assert program.closed is closed
    assert program.arguments == (None, None, None)


def test_slices_without_marks_split_nothing() -> None:
    closed = jax.make_jaxpr(lambda x: (x[:2] * 2, x + 1))(STACK)
    assert split_stacked_arguments(closed, split_always).closed is closed


def test_slices_that_are_not_all_rows_split_nothing() -> None:
    closed = jax.make_jaxpr(lambda x: read_rows(x)[:2] + read_rows(x + 1)[1:])(STACK)
    only_two = jax.make_jaxpr(lambda x: [rows for rows in read_rows(x)][:2])(STACK)
    dropped = only_two.jaxpr.replace(eqns=only_two.jaxpr.eqns[:2])
    assert split_stacked_arguments(closed, split_always).arguments == (SPLIT,)
    alone = jaxpr.ClosedJaxpr(dropped, only_two.consts)
    assert split_stacked_arguments(alone, split_always).arguments == (None,)


# --- random programs ------------------------------------------------------------------------------

STEPS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": lambda x, y: x + 0.5 * y,
    "power": lambda x, y: x**2 / (1 + jnp.abs(y)),
    "select": lambda x, y: jnp.where(x > y, x, 0.0),
    "norm": lambda x, y: x / (1 + jnp.sum(y * y)),
    "largest": lambda x, y: x - jnp.max(jnp.abs(y)),
    "row norm": lambda x, y: x / (1 + jnp.sum(y * y, axis=1, keepdims=True)),
    "row mean": lambda x, y: x + jnp.mean(y, axis=1)[:, None],
    "column": lambda x, y: x + jnp.sum(y, axis=0),
    "mixed": lambda x, y: x + (jnp.ones((ROWS, ROWS)) / ROWS) @ y,
    "flipped": lambda x, y: x + y[::-1],
    "noise": lambda x, y: x + jax.random.normal(jax.random.key(1), y.shape),
    "rows": lambda x, y: x + jnp.arange(ROWS, dtype=jnp.float32)[:, None] * y,
    "slice": lambda x, y: x + jnp.concatenate([y[1:], y[:1]]),
    "relu": lambda x, y: jax.nn.relu(x) - jax.jit(jnp.tanh)(y),
    "while": lambda x, y: lax.fori_loop(0, 2, lambda i, z: z * 0.5 + y, x),
    "scan": lambda x, y: lax.scan(lambda z, row: (z + row * y, z), x, jnp.arange(2.0))[1][1],
    "cond": lambda x, y: lax.cond(jnp.sum(x) > 0, lambda a, b: a + b, lambda a, b: a - b, x, y),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.booleans()), min_size=1, max_size=6))
def test_random_programs(steps: list[tuple[str, bool]]) -> None:
    def function(stack: jax.Array, other: jax.Array) -> Any:
        gradient = jnp.concatenate([jnp.sin(rows) for rows in read_rows(stack)])
        other = other + gradient
        for name, changes_stack in steps:
            x, y = (stack, other) if changes_stack else (other, stack)
            result = jnp.tanh(STEPS[name](x, y))
            stack, other = (result, other) if changes_stack else (stack, result)
        return stack, other

    rng = np.random.default_rng(len(steps))
    check_numbers(function, [np.float32(rng.normal(size=(ROWS, WIDTH))) for _ in range(2)])
