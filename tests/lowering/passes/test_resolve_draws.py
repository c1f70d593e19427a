from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering import lower, ops
from lowering.ground import Options
from lowering.jaxprs import jaxpr
from lowering.passes import resolve_draws
from tests.lowering.samples import V, jaxpr_text, trace

SEED = np.array([1, 2, 3, 1], np.uint32)


def drawn(fn, *args, seed=SEED):
    """The words that a function draws, once it has been resolved."""
    closed, draws_any = resolve_draws(trace(fn, *args), 1)
    assert draws_any
    return jaxpr.run_equations(closed.jaxpr, closed.consts, [*map(jnp.asarray, args), seed])


def test_what_draws_nothing_is_unchanged():
    closed = trace(jnp.sin, V)
    assert resolve_draws(closed, 1) == (closed, False)
    assert not lower(closed, Options()).draws


def test_a_program_has_the_seed_as_its_last_input():
    program = lower(trace(lambda x: ops.draw_key_words(x), V), Options())
    assert program.draws
    assert program.describe_aval(program.inputs[-1]) == "uint32[4]"


def test_draws_are_numbered():
    start = ops.first_key_of_run(SEED, 0)
    first, second = drawn(lambda: (ops.draw_key_words(), ops.draw_key_words()))
    np.testing.assert_array_equal(first, ops.derive_key_words(start, 1))
    np.testing.assert_array_equal(second, ops.derive_key_words(start, 2))


@pytest.mark.parametrize("word", range(3))
def test_each_word_of_the_seed_counts(word):
    other = SEED.copy()
    other[word] += 1
    assert (drawn(ops.draw_key_words)[0] != drawn(ops.draw_key_words, seed=other)[0]).any()


def test_replicas_count_unless_the_seed_says_otherwise():
    keys = [ops.first_key_of_run(SEED, replica) for replica in range(2)]
    assert (keys[0] != keys[1]).any()
    alike = np.array([1, 2, 3, 0], np.uint32)
    keys = [ops.first_key_of_run(alike, replica) for replica in range(2)]
    np.testing.assert_array_equal(*keys)


def test_iterations_count_and_a_reversed_loop_runs_backwards():
    def loop(reverse):
        def fn():
            return jax.lax.scan(
                lambda c, _: (c, ops.draw_key_words()), None, None, length=3, reverse=reverse
            )[1]

        return drawn(fn)[0]

    assert len(np.unique(loop(False), axis=0)) == 3
    np.testing.assert_array_equal(loop(True), loop(False)[::-1])


def test_calls_of_one_function_go_on_sharing_it():
    def noise(x):
        return x + ops.draw_key_words(x)[0].astype(jnp.float32)

    shared = jax.jit(noise)
    closed, _ = resolve_draws(trace(lambda x: (shared(x), shared(x)), V), 1)
    calls = [eqn for eqn in closed.jaxpr.eqns if eqn.params.get("name") == "noise"]
    assert len(calls) == 2
    assert calls[0].params["jaxpr"].jaxpr is calls[1].params["jaxpr"].jaxpr


def test_examples_of_vmaps_draw_for_themselves():
    x = np.ones((2, 3), np.float32)
    words = drawn(lambda x: jax.vmap(jax.vmap(ops.draw_key_words))(x), x)[0]
    assert words.shape == (2, 3, 2)
    assert len(np.unique(words.reshape(6, 2), axis=0)) == 6
    (alike,) = drawn(
        lambda x: jax.vmap(lambda _: ops.draw_key_words(), out_axes=None, axis_size=2)(x), x
    )
    assert alike.shape == (2,)


@pytest.mark.exhaustive
@pytest.mark.parametrize("nested", [False, True])
def test_examples_have_the_numbers_of_their_keys(nested):
    """And what makes them is one operation, whatever vmap is around."""
    words = jax.random.bits(jax.random.key(1), (2, 3, 2), jnp.uint32)
    numbers = jnp.arange(2)

    def own(words, number):
        return ops.random_uint16(ops.wrap_words_as_key(ops.derive_key_words(words, number)), (5,))

    function = jax.vmap(jax.vmap(own, (0, None)) if nested else own)
    args = (words if nested else words[:, 1], numbers)
    made = jax.jit(function)(*args)
    for i in range(2):
        wanted = [own(each, i) for each in words[i]] if nested else own(words[i, 1], i)
        np.testing.assert_array_equal(made[i], wanted)
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(function)(*args).eqns]
    assert (names.count("ipu_draw_key"), names.count("ipu_random_halves")) == (1, 1)
    assert "threefry2x32" not in names


@pytest.mark.sampled(1)
@pytest.mark.parametrize("algorithm", ["threefry2x32", "rbg"])
def test_halves_are_uniform(algorithm):
    key = jax.random.key(0, impl=algorithm)
    assert ops.random_uint16(key, (3, 5)).shape == (3, 5)
    halves = np.asarray(ops.random_uint16(key, (1 << 14,)))
    counts = np.bincount(halves >> 12, minlength=16)
    np.testing.assert_allclose(counts, 1024, atol=5 * 32)


def test_the_text(golden):
    golden(
        jaxpr_text(resolve_draws(trace(lambda: (ops.draw_key_words(), ops.draw_key_words())), 1)[0])
    )
