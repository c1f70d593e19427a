from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.ground import EnqueueError, LoweringError
from lowering.ops import streams
from tests.lowering.samples import jaxpr_text, trace

AVAL = jax.typeof(jnp.float32(0))


class HostQueue:
    """A queue of numbers on the host, as plain JAX uses one."""

    prefetch_depth, keeps_last = None, False

    def __init__(self, name: str, *elements: float):
        self.name, self.elements = name, list(elements)
        self.sent: list[float] = []

    def pull(self, count):
        if count is None:
            return [np.float32(self.elements.pop(0))]
        taken, self.elements = self.elements[:count], self.elements[count:]
        return [np.array(taken, np.float32)]

    def push(self, structure, leaves, count):
        del structure
        (leaf,) = leaves
        self.sent.extend(np.asarray(leaf).reshape(-1).tolist())
        assert np.size(leaf) == (1 if count is None else count)


def queues():
    return HostQueue("in", 1, 2, 3, 4, 5, 6), HostQueue("out")


def loop(source, sink, n=3):
    """A loop that multiplies with elements, and sends the products."""

    def body(c):
        (x,) = streams.dequeue(source, [AVAL])
        streams.enqueue(sink, [c * x], None)
        return [c * x + 1]

    return lambda c: streams.repeat_with_queues(trace(body, AVAL), [], [c], n, None)[0]


def by_hand(c, elements):
    sent = []
    for x in elements:
        sent.append(c * x)
        c = c * x + 1
    return c, sent


@pytest.mark.parametrize("how", ["eager", "jit", "run-time count"])
def test_plain_jax_runs_the_loop_in_order(how):
    source, sink = queues()
    if how == "run-time count":
        fn = jax.jit(lambda c, n: loop(source, sink, n)(c))
        result = fn(2.0, 3)
    else:
        fn = loop(source, sink)
        result = (jax.jit(fn) if how == "jit" else fn)(jnp.float32(2))
    wanted, sent = by_hand(2.0, [1, 2, 3])
    jax.effects_barrier()
    assert float(result) == wanted
    assert sink.sent == sent
    assert source.elements == [4, 5, 6]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_primal_is_sent_once_under_grad(compiled):
    source, sink = queues()
    grad = jax.value_and_grad(loop(source, sink))
    value, slope = (jax.jit(grad) if compiled else grad)(jnp.float32(2))
    wanted, sent = by_hand(2.0, [1, 2, 3])
    jax.effects_barrier()
    assert (float(value), float(slope)) == (wanted, 1 * 2 * 3)
    assert sink.sent == sent
    assert source.elements == [4, 5, 6]


def test_grad_makes_a_scan_of_stacked_elements(golden):
    source, sink = queues()
    golden(jaxpr_text(trace(jax.grad(loop(source, sink)), jnp.float32(2))))


def test_loops_in_loops_under_grad():
    source, sink = queues()
    inner = loop(source, sink, 2)
    outer = trace(lambda c: [inner(c)], AVAL)

    def fn(c):
        return streams.repeat_with_queues(outer, [], [c], 3, None)[0]

    value, slope = jax.value_and_grad(fn)(jnp.float32(2))
    wanted, sent = by_hand(2.0, range(1, 7))
    assert (float(value), float(slope)) == (wanted, 720.0)
    assert sink.sent == sent


def test_calls_inside_of_the_body_are_looked_into():
    source, sink = queues()

    def body(c):
        (x,) = streams.dequeue(source, [AVAL])
        y = jax.jit(lambda a: (streams.enqueue(sink, [a], None), a * x)[1])(c)
        return [y]

    def fn(c):
        return streams.repeat_with_queues(trace(body, AVAL), [], [c], 3, None)[0]

    assert float(jax.grad(fn)(jnp.float32(2))) == 6.0
    assert sink.sent == [2.0, 2.0, 4.0]


def test_constants_are_differentiated_too():
    def fn(w, c):
        body = trace(lambda w, c: [c * w], AVAL, AVAL)
        return streams.repeat_with_queues(body, [w], [c], 3, None)[0]

    assert float(jax.grad(fn)(jnp.float32(2), jnp.float32(1))) == 12.0


def test_vmap_shares_the_elements():
    source, sink = queues()

    def body(c):
        (x,) = streams.dequeue(source, [AVAL])
        return [c * x]

    def fn(c):
        return streams.repeat_with_queues(trace(body, AVAL), [], [c], 3, None)[0]

    del sink
    assert jax.vmap(fn)(jnp.arange(3.0)).tolist() == [0.0, 6.0, 12.0]
    assert source.elements == [4, 5, 6]


def test_blocks_of_elements():
    source, sink = queues()
    (block,) = streams.dequeue(source, [AVAL], 4)
    streams.enqueue(sink, [block * 2], None, 4)
    assert sink.sent == [2.0, 4.0, 6.0, 8.0]


def test_queues_are_found_inside():
    source, sink = queues()
    other = HostQueue("other")

    def fn(c):
        c = loop(source, sink)(c)
        return lax.cond(c > 0, lambda: streams.enqueue(other, [c], None), lambda: None)

    closed = trace(fn, AVAL)
    assert streams.uses_streams(closed)
    assert list(streams.queues_of(closed.jaxpr, streams.enqueue_p)) == [sink, other]
    assert not streams.uses_streams(trace(jnp.sin, AVAL))


# --- what is refused ------------------------------------------------------------------------------


def test_rejects_enqueue_under_vmap():
    _, sink = queues()
    with pytest.raises(EnqueueError, match=r"out: enqueue under `jax\.vmap`") as error:
        jax.vmap(lambda x: streams.enqueue(sink, [x], None))(jnp.ones(3))
    assert __file__ in error.value.where
    assert "outside the vmapped function" in error.value.fix


@pytest.mark.parametrize("what", ["the derivative", "a vmap"])
def test_rejects_transformed_loops_of_run_time_length(what):
    source, sink = queues()
    fn = loop(source, sink, jnp.int32(3))
    transformed = jax.grad(fn) if what == "the derivative" else jax.vmap(fn)
    argument = jnp.float32(1) if what == "the derivative" else jnp.ones(2)
    with pytest.raises(LoweringError, match="or a vmap of a `loops") as error:
        transformed(argument)
    assert "Python int" in error.value.fix


def test_rejects_queues_in_branches_of_differentiated_loops():
    _, sink = queues()

    def body(c):
        lax.cond(c > 0, lambda: streams.enqueue(sink, [c], None), lambda: None)
        return [c * 2]

    def fn(c):
        return streams.repeat_with_queues(trace(body, AVAL), [], [c], 3, None)[0]

    with pytest.raises(EnqueueError, match="inside `cond` in a loop that") as error:
        jax.grad(fn)(jnp.float32(1))
    assert __file__ in error.value.where


def test_loops_of_the_user_and_others_can_be_compared() -> None:
    own = streams.Variables.wrap_structure(jax.tree.structure(()))
    other = streams.Variables.wrap_structure(None)
    assert own != other
    assert own == streams.Variables.wrap_structure(jax.tree.structure(()))
    assert other == streams.Variables.wrap_structure(None)
    assert streams.Variables.wrap_structure(own) is own
