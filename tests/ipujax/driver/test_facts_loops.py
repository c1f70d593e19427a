"""Conformance facts about loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import LoopTypeError
from ipujax.loops import repeat, while_loop
from tests.ipujax.feeding import (
    compilations,
    executions,
    full,
    incr,
    infeed,
    outfeed,
    pairs,
)

f32 = np.float32


@pytest.mark.fact("loops.fib1")
def test_new_and_old_swap_places() -> None:
    run = ipu.compile(lambda a, b: repeat(4, lambda a, b: (a + b, a), [a, b]))
    assert tuple(map(float, run(f32(1), f32(0)))) == (5, 3)


@pytest.mark.fact("loops.alias2")
def test_a_variable_that_stays_and_one_that_grows() -> None:
    run = ipu.compile(lambda a, b: repeat(4, lambda a, b: (a, a + b), [a, b]))
    assert tuple(map(float, run(f32(1), f32(0)))) == (1, 4)


@pytest.mark.fact("loops.nested")
def test_nested_while_loops() -> None:
    def outer(i: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def inner(j: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return j + 1, x * 2

        _, x = while_loop(lambda j, x: j < 2, inner, [np.int32(0), x])
        return i + 1, x

    run = ipu.compile(lambda x: while_loop(lambda i, x: i < 3, outer, [np.int32(0), x]))
    i, x = run(np.full(4, 2, np.int32))
    assert int(i) == 3
    np.testing.assert_array_equal(x, [128] * 4)


@pytest.mark.fact("loops.dynamic_n")
def test_the_number_of_iterations_may_be_an_argument() -> None:
    source, sink = infeed(incr(10, ())), outfeed()

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        sink.enqueue(x + y)
        return x + y

    run = ipu.compile(lambda n, x: repeat(n, body, [x], source))
    with ipu.events.record() as trace:
        assert run(np.int32(1), f32(0)) == 0
        # Element 0 is taken: 999 whole tens and one more element.
        assert run(np.int32(1000), f32(0)) == 4500
    assert compilations(trace) == 1
    assert executions(trace) == 2
    assert sink.dequeue().shape == (1001,)


@pytest.mark.fact("loops.arity")
def test_arity_of_the_body() -> None:
    source = infeed(pairs(3))
    with pytest.raises(LoopTypeError) as caught:
        ipu.compile(lambda: repeat(5, lambda v, x: v, [full(0)], source))()
    assert isinstance(caught.value, TypeError)
    for words in ("1 input", "2 infeed element", "(v, x)"):
        assert words in str(caught.value)
    with pytest.raises(LoopTypeError, match=r"2 input.*0 infeed"):
        ipu.compile(lambda: repeat(5, lambda v: v, [f32(0), f32(0)]))()


@pytest.mark.fact("loops.arity")
def test_arity_of_the_condition_which_never_gets_elements() -> None:
    source = infeed(pairs(3))

    def body(v: Any, x: Any, y: Any) -> Any:
        return v + x + y

    with pytest.raises(LoopTypeError, match=r"condition.*1 input\(s\) and 0 infeed"):
        ipu.compile(lambda: while_loop(lambda v, x, y: v[0, 0] < 5, body, [full(0)], source))()
    run = ipu.compile(lambda: while_loop(lambda v: v[0, 0] < 5, body, [full(0)], source))
    np.testing.assert_array_equal(run(), full(5))


@pytest.mark.fact("loops.dtype_mismatch")
@pytest.mark.parametrize("source", [None, infeed(incr(3, ()))], ids=["plain", "infeed"])
def test_the_body_keeps_dtypes(source: Any) -> None:
    def body(x: jax.Array, *element: jax.Array) -> jax.Array:
        return x.astype(jnp.float16)

    with pytest.raises(LoopTypeError, match=r"float32.*float16") as caught:
        ipu.compile(lambda x: repeat(2, body, [x], source))(f32(1))
    assert isinstance(caught.value, TypeError)


@pytest.mark.fact("loops.no_inputs")
@pytest.mark.parametrize("inputs", [None, [], ()])
def test_a_loop_without_loop_variables(inputs: Any) -> None:
    source, sink = infeed(incr(10, ())), outfeed()

    def body(x: jax.Array) -> None:
        sink.enqueue(x * 2)

    result = ipu.compile(lambda: repeat(5, body, inputs, source))()
    assert result == ()
    np.testing.assert_array_equal(sink.dequeue(), [0, 2, 4, 6, 8])


@pytest.mark.fact("loops.no_inputs")
def test_a_body_without_loop_variables_may_return_what_enqueue_returned() -> None:
    source, sink = infeed(incr(10, ())), outfeed()
    result = ipu.compile(lambda: repeat(3, lambda x: sink.enqueue(x), [], source))()
    assert result == ()
    np.testing.assert_array_equal(sink.dequeue(), [0, 1, 2])


@pytest.mark.sampled(1)
@pytest.mark.fact("loops.repeat_is_while_true")
@pytest.mark.parametrize("n", [0, 1, 7])
def test_repeat_is_an_endless_while_with_a_limit(n: int) -> None:
    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        return x * 2 + y

    def always(x: jax.Array) -> jax.Array:
        return jnp.bool_(True)

    first, second = infeed(incr(5)), infeed(incr(5))
    repeated = ipu.compile(lambda: repeat(n, body, [full(1)], first))()
    limited = ipu.compile(
        lambda: while_loop(always, body, [full(1)], second, maximum_iterations=n)
    )()
    np.testing.assert_array_equal(repeated, limited)


@pytest.mark.fact("loops.while_infeed_tuple")
def test_a_while_loop_over_pairs() -> None:
    source = infeed(pairs(3))

    def body(i: Any, v: Any, im1: Any, im2: Any) -> Any:
        return i + 1, v + im1 + im2

    def program(v: jax.Array) -> Any:
        return while_loop(lambda i, v: i < 20, body, [np.int32(0), v], source)

    i, v = ipu.compile(program)(full(1))
    assert int(i) == 20
    np.testing.assert_array_equal(v, full(129.5))
