"""Products, lookups and updates that become one, and those that must not."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import ir, machine, marks
from lowering.ground import Options
from lowering.jaxprs import function_of_jaxpr, walk_equations
from lowering.passes import combine_lookups, combine_products, combine_updates
from tests.lowering.samples import jaxpr_text, kernels, lowered, trace

RNG = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def all_combined(program):
    return combine_products(combine_updates(combine_lookups(program)))


def count(program, *names):
    eqns = [eqn for execute in kernels(program) for eqn in walk_equations(execute.kernel.jaxpr)]
    return sum(eqn.primitive.name in names for eqn in eqns)


def results(program, operands):
    """Of a program of one kernel, by name of the value."""
    (execute,) = kernels(program)
    at = dict(zip(program.inputs, operands, strict=True))
    values = jax.jit(function_of_jaxpr(execute.kernel.jaxpr))(
        *(at[value] for value in execute.reads)
    )
    by_name = dict(zip(execute.writes, values, strict=True))
    return [by_name[value] for value in program.outputs]


def check(function, *operands, rtol=1e-5, atol=1e-5):
    """The program with all combined, which gives what `jax.jit` does; and the one before."""
    before = lowered(function, *operands, ipus=1)
    after = all_combined(before)
    ir.verify(after)
    expected = jax.tree.leaves(jax.jit(function)(*operands))
    for one, other in zip(results(after, operands), expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    return before, after


def attention(x, query, key, value):
    q, k, v = x @ query, jnp.tanh(x @ key), jnp.einsum("bij,jk->bik", x, value)
    scores = jax.nn.softmax(jnp.einsum("bik,bjk->bij", q, k))
    return jnp.sum((scores @ v) ** 2)


ATTENTION = [array(2, 5, 8), array(8, 6), array(8, 6), array(8, 4)]


def both(x, weights, other):
    """Products with an input, and with weights, in common."""
    return x @ weights, other @ x, other @ weights, (x.T @ weights).sum()


SQUARES = [array(6, 6) for _ in range(3)]

PRODUCTS = {
    "attention": (attention, ATTENTION, 5, 3),
    "both": (both, SQUARES, 4, 2),
    "several free dimensions": (
        lambda x, w, u: (jnp.einsum("bd,dhk->bhk", x, w), jnp.einsum("bd,dhk->bhk", x, u)),
        [array(3, 4), array(4, 2, 5), array(4, 7, 5)],
        2,
        1,
    ),
    "batches": (
        lambda x, w, u: (jnp.einsum("bij,bjk->bik", x, w), jnp.einsum("bij,bjk->bik", x, u)),
        [array(3, 4, 5), array(3, 5, 2), array(3, 5, 6)],
        2,
        1,
    ),
    "weights on the left": (
        lambda w, x, y: (jnp.einsum("io,bi->ob", w, x), jnp.einsum("io,bi->ob", w, y)),
        [array(4, 6), array(2, 4), array(3, 4)],
        2,
        1,
    ),
    "half precision": (
        lambda x, w, u: (x @ w, x @ u),
        [array(3, 4, dtype=np.float16), *(array(4, 5, dtype=np.float16) for _ in range(2))],
        2,
        1,
    ),
    "in a loop": (
        lambda x, w, u: lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c @ w) + jnp.sin(c @ u), x),
        SQUARES,
        2,
        1,
    ),
    "in a branch": (
        lambda x, w, u: lax.cond(x[0, 0] > 0, lambda: x @ w + x @ u, lambda: x),
        SQUARES,
        2,
        1,
    ),
    "in jitted functions": (
        lambda x, w, u: sum(jax.jit(lambda a, b: jnp.tanh(a @ b))(x, each) for each in (w, u)),
        SQUARES,
        2,
        1,
    ),
    "of two types": (
        lambda x, w, u: (x @ w, lax.dot(x, u, preferred_element_type=jnp.bfloat16)),
        SQUARES,
        2,
        2,
    ),
    "with different extents": (
        lambda x, w, u: (jnp.einsum("bd,hdk->bhk", x, w), jnp.einsum("bd,hdk->bhk", x, u)),
        [array(3, 4), array(2, 4, 5), array(2, 4, 6)],
        2,
        2,
    ),
    "with vectors": (lambda x, v, u: (x @ v, x @ u), [array(3, 3), array(3), array(3)], 2, 2),
    "one after the other": (lambda x, w: (x @ w) @ w, SQUARES[:2], 2, 2),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_that_share_an_operand_are_one(case):
    function, operands, several, fewer = PRODUCTS[case]
    before, after = check(function, *operands, rtol=1e-3 if case == "half precision" else 1e-5)
    assert count(before, "dot_general") == several
    assert count(after, "dot_general") == fewer
    if several == fewer:
        assert ir.to_text(after) == ir.to_text(before)


def test_combined_products(golden):
    gradient = jax.value_and_grad(attention, argnums=(0, 1, 2, 3))
    program = lowered(gradient, *ATTENTION, combine_products=True)
    assert count(program, "dot_general") == 11  # of 15: q, k and v are one, and their gradients
    golden(ir.to_text(program) + "".join(jaxpr_text(k.kernel.jaxpr) for k in kernels(program)))
    check(gradient, *ATTENTION, rtol=1e-4, atol=1e-4)


def looked_up(table, one, other, more):
    first = jnp.take(table, one, axis=0)
    second = jnp.take(table, more, axis=0) * 2
    rows = jnp.stack([first.mean(0), second.sum(0)]) @ table[other].sum((0, 1))
    return jnp.sum(rows) + jnp.sum(table[one] ** 2)


LOOKUPS = [array(11, 4), *(RNG.integers(0, 11, shape) for shape in ((5,), (2, 3), (7,)))]


def test_lookups_of_one_table_are_one(golden):
    gradient = jax.value_and_grad(looked_up)
    before, after = check(gradient, *LOOKUPS)
    # Two with indices out of range filled, and two without such.
    assert count(before, "gather") == count(before, "scatter-add") == 4
    assert count(after, "gather") == count(after, "scatter-add") == 2
    program = lowered(gradient, *LOOKUPS, combine_lookups=True)
    golden(ir.to_text(program) + "".join(jaxpr_text(k.kernel.jaxpr) for k in kernels(program)))


def test_indices_out_of_range_are_so_afterwards():
    def fn(table, one, other):
        return jnp.take(table, one, axis=0), jnp.take(table, other, axis=0)

    wrong = [LOOKUPS[0], np.array([2, 40, -3]), np.array([-40, 1])]
    _, after = check(fn, *wrong)
    assert count(after, "gather") == 1


def test_lookups_of_what_another_gives_stay():
    def fn(table, one):
        rows = table[one]
        return rows + table[rows[:, 0].astype(int) % 11]

    before, after = check(fn, *LOOKUPS[:2])
    assert count(before, "gather") == count(after, "gather") == 2


def test_updates_that_are_read_by_others_stay():
    def fn(table, one, rows):
        first = jnp.zeros_like(table).at[one].add(rows)
        second = jnp.zeros_like(table).at[one].add(rows * 2)
        third = table.at[one].add(rows)
        return first + second + third, jnp.sin(first)

    before, after = check(fn, *LOOKUPS[:2], array(5, 4))
    assert count(before, "scatter-add") == count(after, "scatter-add") == 3


def test_updates_are_one_in_a_sum_with_a_number():
    def fn(table, one, rows):
        first = jnp.zeros_like(table).at[one].add(rows)
        second = jnp.zeros_like(table).at[one].add(rows * 2)
        return first + second + 1.0

    before, after = check(fn, *LOOKUPS[:2], array(5, 4))
    assert (count(before, "scatter-add"), count(after, "scatter-add")) == (2, 1)


def test_loops_combine_inside():
    def fn(table, one, more):
        def step(total, _):
            changed = table * total
            rows = (jnp.take(changed, indices, axis=0) for indices in (one, more))
            return sum((found**2).sum() for found in rows), 0

        return jax.value_and_grad(lambda t: lax.scan(step, t, length=2)[0])(0.1)

    before, after = check(fn, LOOKUPS[0], LOOKUPS[1], LOOKUPS[3], rtol=1e-4)
    assert count(after, "gather") < count(before, "gather")
    assert count(after, "scatter-add") < count(before, "scatter-add")


def test_what_is_computed_again_does_not_join_the_first_time():
    layer = jax.checkpoint(lambda x, w: jnp.sin(jnp.sin(x @ w)))
    gradient = jax.value_and_grad(lambda w, x: layer(x, w).sum())
    before, after = check(gradient, SQUARES[0], SQUARES[1])
    assert count(before, "dot_general") == count(after, "dot_general") == 3


def test_scopes_with_different_options_share_nothing():
    def fn(x, w, u):
        with jax.named_scope(marks.write_mark(marks.ATTRIBUTE, marks.PARTIALS_TYPE, "float16")):
            first = x @ w
        return first + x @ u

    before, after = check(fn, *SQUARES)
    assert count(after, "dot_general") == count(before, "dot_general") == 2


def test_effects_keep_their_order():
    seen = []

    def fn(x, w, u):
        jax.debug.callback(lambda y: seen.append(float(y)), jnp.sum(x @ w), ordered=True)
        jax.debug.callback(lambda y: seen.append(float(y)), jnp.sum(jnp.sin(x)), ordered=True)
        return x @ jnp.sin(u), x @ u

    before = lowered(fn, *SQUARES, ipus=1)
    after = all_combined(before)
    assert count(after, "dot_general") == 1
    for program in (before, after):
        jax.block_until_ready(results(program, SQUARES))
        jax.effects_barrier()
    assert seen[2:] == pytest.approx(seen[:2], rel=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs_compute_the_same(seed):
    draw = random.Random(seed)

    def fn(x, w, u):
        values = [x, w, u]
        for _ in range(40):
            one, other = draw.sample(values[-9:] + values[:3], 2)
            kind = draw.randrange(4)
            if kind < 2:
                values.append(jnp.tanh(one @ other / 4) if kind else one @ values[0] / 4)
            else:
                values.append(jnp.sin(one) if kind == 2 else one + other)
        return values[3:]

    closed = trace(fn, *SQUARES)  # once: what is drawn is another the next time
    before = lowered(function_of_jaxpr(closed), *SQUARES, ipus=1)
    after = combine_products(before)
    ir.verify(after)
    assert count(after, "dot_general") < count(before, "dot_general")
    for one, other in zip(
        results(after, SQUARES), function_of_jaxpr(closed)(*SQUARES), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_kernels_without_any_stay():
    program = lowered(lambda x: jnp.sin(x) + 1, SQUARES[0])
    assert kernels(all_combined(program))[0] is kernels(program)[0]


def test_the_model_says_what_it_takes():
    operands = [array(64, 256), *(array(256, 256) for _ in range(3))]
    fn = lambda x, *weights: [jnp.tanh(x @ w) for w in weights]  # noqa: E731
    asked = [{}, {"combine_products": True}]
    one, other = (
        machine.model(lowered(fn, *operands, **options), machine.ModelOptions())
        for options in asked
    )
    assert other.cycles < one.cycles
    assert other.memory.peak_bytes[0] != one.memory.peak_bytes[0]


def test_options_are_off_by_default():
    assert (Options().combine_products, Options().combine_lookups) == (False, False)
