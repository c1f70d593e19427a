"""Views that a program gives back are variables of their own: they are written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from lowering.machine import IPU2, Profile
from tests.lowering.machine.samples import EXCHANGE, SYNC, TILES, modelled
from tests.lowering.samples import lowered

M = jax.ShapeDtypeStruct((64, 128), jnp.float32)
MOST = 64 * 128 * 4 // TILES  # bytes of it on a tile
COPY = SYNC + MOST // 8
MOVE = COPY + EXCHANGE + MOST // IPU2.exchange_bytes


def profile(fn, *args) -> Profile:
    return modelled(lowered(fn, *args))


@pytest.mark.parametrize(
    ("fn", "cycles"),
    [
        (lambda x: x.T, MOVE),
        (lambda x: x[::-1], MOVE),
        (lambda x: x.reshape(8, 16, 64).transpose(2, 1, 0), MOVE),
        (lambda x: x.reshape(-1), COPY),
        (lambda x: x[None], COPY),
        (lambda x: x.T.T, COPY),
        (lambda x: x, 0),
        (lambda x: (x.T, x.reshape(-1)), MOVE + COPY),
    ],
)
def test_what_views_cost_that_are_given_back(fn, cycles):
    found = profile(fn, M)
    assert found.cycles == cycles
    assert sum(total.cycles for total in found.operations) == cycles
    assert all("test_outputs.py" in total.origin for total in found.operations)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[3:50],
        lambda x: x[:, 5],
        lambda x: jnp.broadcast_to(x, (3, 64, 128)),
        lambda x: jnp.concatenate([x, x[:2]]),
        lambda x: jnp.pad(x, 1),
        lambda x: jnp.split(x, 2),
    ],
)
def test_parts_and_repetitions_are_sent_and_written(fn):
    found = profile(fn, M)
    busy = {step.kind for step in found.steps}
    assert busy == {"sync", "exchange", "compute"}


def test_what_was_made_goes_on_as_it_lies_unless_it_is_turned():
    made, turned = profile(lambda x: x * 2, M), profile(lambda x: (x * 2).T, M)
    assert turned.cycles - made.cycles == MOVE
    assert profile(lambda x: (x * 2).reshape(-1), M).cycles == made.cycles


def test_gradients_in_a_plans_order_are_not_turned_twice():
    """The gradient of a weight is a transposed product, which lies as its plan leaves it."""
    found = profile(lambda x, w: (x @ w).T, *(jax.ShapeDtypeStruct((64, 64), jnp.float32),) * 2)
    assert [total.name for total in found.operations] == [
        "dot_general float32[64,64]",
        "output",
    ]


def test_what_is_read_on_costs_nothing_more():
    turned, made = profile(lambda x: jnp.exp(x.T), M), profile(lambda x: jnp.exp(x), M)
    assert turned.cycles == made.cycles


def test_loops_turn_their_variables():
    """A variable that an iteration turns must lie as it did when the next one begins."""

    def turning(x):
        return jax.lax.fori_loop(0, 4, lambda i, c: (c * 2).T, x)

    def plain(x):
        return jax.lax.fori_loop(0, 4, lambda i, c: c * 2, x)

    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert profile(turning, square).cycles > profile(plain, square).cycles
