"""What runs as one, where that changes what is alive; chains themselves are in test_listing.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering import marks
from lowering.machine import PlanOptions
from lowering.machine.kernels import Item, Loop, fuse_elementwise_chains, list_operations
from lowering.machine.primitives import ELEMENTWISE
from tests.lowering.machine.samples import alive, kernel


def names(fn, *args):
    """The primitives of each item."""
    closed = jax.make_jaxpr(fn)(*args)
    items = fuse_elementwise_chains(
        list_operations(closed, PlanOptions()), ELEMENTWISE.__contains__
    ).items
    return [item.name for item in items if isinstance(item, Item)]


def items_of(listing):
    """All items, those in bodies of loops and branches too."""
    for entry in listing.items:
        if isinstance(entry, Item):
            yield entry
            continue
        for body in entry.bodies if isinstance(entry, Loop) else entry.branches:
            yield from items_of(body)


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_a_sum_of_products_holds_two_of_them(count):
    """Each product is added as soon as it is there, instead of all at the end."""
    x = jnp.zeros((64, 32))
    weights = [jnp.zeros((32, 64))] * count
    held = alive(lambda ws, x: sum(x @ w for w in ws), weights, x)
    assert held.activation_bytes == 2 * 64 * 64 * 4


def test_what_keeps_no_more_alive_is_still_one_chain():
    x = jnp.zeros(64)
    assert names(lambda x, y: jnp.tanh(x) * y + 1.0, x, x) == ["tanh mul add"]


def test_lines_that_are_kept_apart_have_chains_of_their_own():
    def fn(x):
        y = jnp.tanh(x) + 1.0
        return jnp.exp(y) * 2.0

    def apart(x):
        with marks.keep_lines_apart():
            return fn(x)

    assert names(fn, jnp.zeros(64)) == ["tanh add exp mul"]
    assert names(apart, jnp.zeros(64)) == ["tanh add", "exp mul"]


@pytest.mark.parametrize("nested", [False, True])
def test_lines_are_kept_apart_in_bodies_of_loops_too(nested):
    def turn(x):
        y = jnp.tanh(x) + 1.0
        return jnp.exp(y) * 2.0

    def loop(x):
        def repeated(x):
            return jax.lax.fori_loop(0, 3, lambda _, x: turn(x), x)

        return jax.lax.cond(x[0] > 0, repeated, turn, x) if nested else repeated(x)

    def apart(x):
        with marks.keep_lines_apart():
            return loop(x)

    def names_inside(fn):
        listing = fuse_elementwise_chains(
            list_operations(jax.make_jaxpr(fn)(jnp.zeros(64)), PlanOptions()),
            ELEMENTWISE.__contains__,
        )
        return [item.name for item in items_of(listing) if "exp" in item.name]

    assert set(names_inside(loop)) == {"tanh add exp mul"}
    assert set(names_inside(apart)) == {"exp mul"}


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_a_reduction_takes_halves_as_they_are(dtype):
    x = jnp.zeros((8, 64), dtype)
    assert names(lambda x: x.sum(-1), x) == ["reduce_sum", "convert_element_type"]
    assert names(lambda x: jnp.tanh(x).sum(-1), x)[:2] == ["tanh", "reduce_sum"]
    # Only the chain's result in halves is there, never one in float32.
    assert alive(lambda x: jnp.tanh(x).sum(-1), x).activation_bytes < 8 * 64 * 4


def test_a_cast_that_others_read_stays():
    def fn(x):
        wide = x.astype(jnp.float32)
        return wide.sum(), wide

    assert "convert_element_type" in names(fn, jnp.zeros((8, 64), jnp.float16))


def test_a_reduction_of_halves_costs_no_more_than_one_of_floats():
    costs = [kernel(lambda x: x.sum(-1), jnp.zeros((512, 512), d)) for d in ("float16", "float32")]
    assert costs[0].cycles < costs[1].cycles


def gradient_of_lookup(table, indices, total):
    grads = jax.grad(lambda t: jnp.sin(t[indices]).sum())(table)
    return total + grads


def test_gradients_of_lookups_go_straight_into_their_sum():
    """No table of zeros to scatter into, and no second one to add."""
    table, total = jnp.zeros((64, 16)), jnp.zeros((64, 16))
    indices = jnp.zeros(4, jnp.int32)
    found = names(gradient_of_lookup, table, indices, total)
    assert found[-1] == "scatter-add"
    assert "add" not in found[-2:]
    held = alive(gradient_of_lookup, table, indices, total, away=(2,))
    assert held.activation_bytes < table.nbytes


def test_closed_over_arrays_are_constants():
    table = np.ones(4096, np.float32)
    held = alive(lambda x: jax.jit(lambda y: y + jnp.asarray(table))(x), jnp.zeros(4096))
    assert [t.laid.mapping.total_bytes for t in held.tensors if t.category == "constants"] == [
        16384
    ]


def test_totals_are_of_one_signature():
    """Two products of one shape that contract over different extents are two rows."""
    a, b, c, d = jnp.zeros((8, 8)), jnp.zeros((8, 16)), jnp.zeros((8, 256)), jnp.zeros((256, 16))
    cost = kernel(lambda a, b, c, d: (a @ b, c @ d), a, b, c, d)
    totals = [total for total in cost.totals.values() if total.title.startswith("dot_general")]
    assert sorted(total.flops for total in totals) == [2 * 8 * 8 * 16, 2 * 8 * 256 * 16]
    assert {total.title for total in totals} == {"dot_general float32[8,16]"}


def test_what_joins_two_tensors_is_copied():
    x = jnp.zeros((64, 64))
    joined = kernel(lambda x, y: jnp.concatenate([x, y]), x, x)
    assert joined.cycles > 0
    assert alive(lambda x, y: jnp.concatenate([x, y]), x, x).activation_bytes == 2 * 64 * 64 * 4


@pytest.mark.parametrize(
    "join",
    [
        lambda x: jnp.concatenate([x, jnp.zeros((0, 64))]) + 1,
        lambda x: jax.lax.pad(x, 0.0, [(0, 0, 0), (0, 0, 0)]) + 1,
    ],
)
def test_what_is_joined_with_nothing_stays_where_it_is(join):
    x = jnp.zeros((64, 64))
    assert kernel(join, x).cycles == kernel(lambda x: x + 1, x).cycles


def test_callbacks_are_said_to_be_free():
    def fn(x):
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((4,), "float32"), x)

    (assumption,) = kernel(fn, jnp.zeros(4)).assumptions
    assert "callback takes no time" in assumption
    assert "test_fusing.py" in assumption
