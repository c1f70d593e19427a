from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.ops import Storage, bring_from_storage, dequeue, enqueue, move_to_storage
from lowering.passes import drop_dead, inline_calls, partition, place
from tests.lowering.samples import N, Queue, S, V, W, X, kernels, outside, shard, trace


def parted(fn, *args, ipus=2):
    placed = place(drop_dead(inline_calls(trace(fn, *args))))
    return partition(placed, name="main", ipus=ipus, replicas=1)


def text(fn, *args):
    return ir.to_text(parted(fn, *args))


def test_layers(golden):
    def fn(w, x):
        for number in (0, 1, 0):
            with shard(number):
                x = jnp.tanh(x @ w)
        return x

    golden(text(fn, W, X))


def test_independent_shards_stand_side_by_side(golden):
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            b = jnp.cos(x)
        with shard(0):
            a = a * 2
        with shard(1):
            b = b * 3
        with shard(0):
            return a + b

    golden(text(fn, V))


def test_a_decay_waits_for_the_update_that_adds_to_it(golden):
    def fn(w, x):
        decayed = w * 0.9
        with shard(0):
            y = jnp.tanh(x @ w)
        with shard(1):
            z = jnp.sin(y)
        with shard(0):
            return decayed + x.T @ z

    golden(text(fn, W, X))


def test_large_work_and_shrinking_results_do_not_wait(golden):
    def fn(w, x):
        with shard(1):
            products, narrow = w @ w, w.astype(jnp.float16)
        with shard(0):
            y = jnp.tanh(x @ w)
        with shard(1):
            return y @ products + narrow

    golden(text(fn, W, W))


def test_scan(golden):
    def fn(c, x):
        table = jnp.arange(3.0)

        def step(c, row):
            with shard(0):
                h = c * row + table
            with shard(1):
                return jnp.sin(h), (h.sum(), 1.0)

        return lax.scan(step, c, x, reverse=True)

    golden(text(fn, V, X))


def test_while(golden):
    def fn(x, n):
        def condition(c):
            with shard(0):
                return c[0] < n

        def body(c):
            with shard(1):
                return c[0] + 1, c[1] * 2

        return lax.while_loop(condition, body, (0, x))

    golden(text(fn, V, N))


def test_switch(golden):
    def fn(x, n):
        def first(a):
            with shard(0):
                return jnp.sin(a), 2.0

        def second(a):
            with shard(1):
                return a * 2, a.sum()

        return lax.switch(n, [first, second, lambda a: (a, 0.0)], x)

    golden(text(fn, V, N))


def test_queues_and_host_calls_are_steps(golden):
    queue, other = Queue("in"), Queue("out")

    def fn(x):
        (y,) = dequeue(queue, [jax.typeof(jnp.zeros(3, jnp.float32))])
        with shard(1):
            z = x * y
        with outside("save"):
            z = jnp.log(z)
        with shard(1):
            enqueue(other, [z, x], None)
        return z

    golden(text(fn, V))


def test_ordered_effects_keep_their_order():
    seen: list[str] = []

    def fn(x):
        for number, name in enumerate("abcd"):
            with shard(number % 2):
                jax.experimental.io_callback(
                    lambda v, name=name: seen.append(name), None, x, ordered=True
                )
        return x

    steps = [node.ipu for node in kernels(parted(fn, S))]
    assert steps == [0, 1, 0, 1]


def test_shared_bodies_have_values_of_their_own():
    @jax.jit
    def layer(c):
        def step(d, _):
            with shard(0):
                h = d + 1
            with shard(1):
                return h * 2, None

        return lax.scan(step, c, None, length=2)[0]

    program = parted(lambda x: layer(layer(x)), V)
    written = [value for node in ir.walk_nodes(program.body) for value in ir.values_written(node)]
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("number", [0, 1])
def test_every_equation_is_in_one_kernel(number):
    def fn(x):
        with shard(number):
            y = jnp.sin(x)
        with shard(1 - number):
            z = jnp.cos(y) + y
        return z * y, z

    equations = len(trace(fn, V).jaxpr.eqns)
    assert sum(len(k.kernel.jaxpr.jaxpr.eqns) for k in kernels(parted(fn, V))) == equations


def test_literal_results_become_constants():
    program = parted(lambda x: (x, 2.5, 3), V)
    assert [data for _, data in program.constants] == [2.5, 3]
    assert program.body.steps == ()


# --- values from streaming memory -----------------------------------------------------------------

REMOTE = Storage(remote=True)


def operations(program):
    """The primitives of each kernel, in order."""
    return [
        " ".join(eqn.primitive.name for eqn in node.kernel.jaxpr.jaxpr.eqns)
        for node in kernels(program)
    ]


def stepped(storage, work):
    """Two states of an optimizer that are loaded, worked on and stored."""

    def fn(a, b, rate):
        kept = [move_to_storage(x, storage) for x in (a, b)]
        return work(*(bring_from_storage(k, storage) for k in kept), rate)

    return parted(fn, V, V, S, ipus=1)


def test_what_shares_scalars_only_is_apart():
    def decay(a, b, rate):
        return jnp.sin(a) * rate, jnp.cos(b) * rate

    assert operations(stepped(REMOTE, decay)) == ["sin mul", "cos mul"]
    # On the tiles, nothing is won by that.
    assert operations(stepped(Storage(sharded=True), decay)) == ["sin mul cos mul"]


def test_what_shares_a_tensor_is_together():
    def mixed(a, b, rate):
        c = jnp.sin(a) + b
        return c * rate, b * rate

    assert operations(stepped(REMOTE, mixed)) == ["sin add mul mul"]


def test_scalars_for_all_come_first():
    def scaled(a, b, rate):
        rate = jnp.sqrt(rate)
        return a * rate, b * rate

    assert operations(stepped(REMOTE, scaled)) == ["sqrt", "mul", "mul"]


def test_scalars_of_all_come_between():
    """A norm over both states, by which each is then divided."""

    def normed(a, b, rate):
        norm = a.sum() + b.sum()
        return a / norm, b / norm

    found = operations(stepped(REMOTE, normed))
    assert sorted(found[:2]) == ["reduce_sum", "reduce_sum"]
    assert found[2:] == ["add", "div", "div"]


def test_parts_share_scalars_only():
    """What is made of one state by tensors, in however many kernels, never meets the other's."""

    def work(a, b, rate):
        c = jnp.outer(a, a).sum(0) * rate
        return c + a.sum() * b.sum(), jnp.sin(b) * c.sum(), rate + b.sum()

    program = stepped(REMOTE, work)
    large = {i for i, aval in enumerate(program.avals) if aval.size * aval.dtype.itemsize > 8}
    loads = [node.value for node in ir.walk_nodes(program.body) if isinstance(node, ir.Load)]
    reached: list[set[int]] = []
    for value in loads:
        found = {value}
        for node in kernels(program):
            if found & set(node.reads):
                found |= large & set(node.writes)
        reached.append(found)
    assert len(kernels(program)) > 3
    assert all(len(found) > 1 for found in reached)
    assert not reached[0] & reached[1]
