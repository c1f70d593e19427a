from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import (
    bodies_of_node,
    places_of_reads,
    places_of_writes,
    rewrite_bodies,
    rewrite_nodes,
)
from lowering.ops import enqueue, repeat_with_queues
from tests.lowering.samples import N, Queue, V, X, kernels, lowered, outside, shard, trace

AVAL = jax.typeof(jnp.zeros(3, jnp.float32))


def looped(x, y):
    def step(c, row):
        with shard(0):
            h = c * row + y
        with shard(1):
            return jnp.sin(h), h

    return lax.scan(step, y, x)


def branched(x, n):
    def body(c):
        with shard(0):
            h = c[1] + x
        with shard(1):
            return c[0] + 1, h * 2

    def left():
        with shard(0):
            return x + 1

    return lax.cond(n > 3, left, lambda: lax.while_loop(lambda c: c[0] < n, body, (0, x))[1])


def only(program, kind):
    (node,) = [node for node in ir.walk_nodes(program.body) if isinstance(node, kind)]
    return node


def test_walk_gives_parents_before_children_in_order():
    names = [type(node).__name__ for node in ir.walk_nodes(lowered(branched, V, N).body)]
    assert names.index("Switch") < names.index("While") < len(names) - 1
    assert names.count("Switch") == names.count("While") == 1


def test_bodies():
    program = lowered(branched, V, N)
    assert len(bodies_of_node(only(program, ir.Switch))) == 2
    loop = only(program, ir.While)
    condition, body = bodies_of_node(loop)
    assert (condition.sequence, body.sequence) == (loop.condition, loop.body)
    assert condition.values_read_after == (loop.predicate,)
    assert body.values_read_after == tuple(carry.leaving for carry in loop.carry)
    assert bodies_of_node(kernels(program)[0]) == ()


def test_every_body_can_be_changed():
    """That of a loop's condition too."""
    program = lowered(branched, V, N)
    loop = only(program, ir.While)
    empty = rewrite_bodies(loop, lambda body: ir.Sequence(()))
    assert empty == dc.replace(loop, condition=ir.Sequence(()), body=ir.Sequence(()))
    seen = []
    same = rewrite_nodes(program.body, lambda node: seen.append(node) or node)
    assert same == program.body
    assert sorted(map(id, map(type, seen))) == sorted(
        id(type(node)) for node in ir.walk_nodes(program.body)
    )
    assert seen.index(loop) < seen.index(only(program, ir.Switch))


def test_reads_and_writes_of_a_loop():
    program = lowered(looped, X, V)
    loop = only(program, ir.Repeat)
    x, y = program.inputs
    assert set(ir.values_read(loop)) == {x, y}
    assert set(ir.values_written(loop)) == set(program.outputs)


def test_reads_of_branches_are_free_values_only():
    program = lowered(branched, V, N)
    switch = only(program, ir.Switch)
    inner = {
        value
        for node in ir.walk_nodes(switch.branches[1].body)
        for value in ir.values_written(node)
    }
    assert not inner & set(ir.values_read(switch))
    assert switch.index in ir.values_read(switch)
    assert set(program.inputs) <= set(ir.values_read(switch)) | set(
        ir.values_read(kernels(program)[0])
    )


def test_streams_knows_what_the_host_must_drive():
    def body(c):
        enqueue(Queue("q"), [c], None)
        return [c + 1]

    def fn(x):
        return repeat_with_queues(trace(body, AVAL), [], [x], 2, None)

    program = lowered(fn, V)
    assert ir.needs_host(only(program, ir.Repeat))
    assert not ir.needs_host(only(lowered(looped, X, V), ir.Repeat))
    with_host = lowered(lambda x: _on_host(x), V)
    assert ir.needs_host(only(with_host, ir.HostCall))


def _on_host(x):
    with outside():
        return x + 1


def test_places_of_a_loop():
    program = lowered(looped, X, V)
    loop = only(program, ir.Repeat)
    (carry,) = loop.carry
    (stack,) = loop.stacks
    assert set(places_of_writes(loop)) == {(carry.final, carry.ipu), (stack.stacked, stack.ipu)}
    (element,) = loop.slices
    entering = {(carry.entering, carry.ipu), (element.element, element.ipu)}
    assert set(bodies_of_node(loop)[0].arguments) == entering
    read = set(ir.PlacesOfReads()(loop))
    assert {(carry.initial, carry.ipu), (carry.leaving, carry.ipu)} <= read


def test_places_of_leaves():
    a, b = ValueId(0), ValueId(1)
    copy = ir.Copy((a, b), HOST, IpuId(1))
    none = ir.PlacesOfReads()
    assert list(places_of_writes(copy)) == [(a, 1), (b, 1)]
    assert list(places_of_reads(copy, none)) == [(a, HOST), (b, HOST)]
    taken = ir.StreamIn(Queue("q"), IpuId(1), (a,))
    sent = ir.StreamOut(Queue("q"), IpuId(1), (a,), None)
    assert (list(places_of_writes(taken)), list(places_of_reads(taken, none))) == ([(a, 1)], [])
    assert (list(places_of_writes(sent)), list(places_of_reads(sent, none))) == ([], [(a, 1)])


def test_programs_are_frozen():
    program = lowered(looped, X, V)
    with pytest.raises(dc.FrozenInstanceError):
        program.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dc.FrozenInstanceError):
        kernels(program)[0].ipu = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_describe():
    program = lowered(lambda x: (x, jax.random.key(0)), X)
    assert program.describe_aval(program.inputs[0]) == "float32[2,3]"
    assert program.describe_aval(program.outputs[1]) == "key<fry>[]"
