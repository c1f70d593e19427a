"""Copies on one way go together, if what they copy is there and is not too much."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.ground import HOST
from lowering.ir import verify
from lowering.passes import merge_copies
from tests.lowering.samples import V, lowered, outside, shard, text_of

PAGE = jax.ShapeDtypeStruct((1024,), jnp.float32)


def called(x):
    """Calls of the host; the last one reads what is made after the first two."""
    made = [jnp.exp(x), jnp.sin(x), jnp.cos(x)]
    with outside():
        total = made[0] + made[1] + made[2]
    late = jnp.tanh(total)
    with outside():
        return late * made[0]


def ways(program, *way):
    """How many values each copy on one way has."""
    nodes = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]
    return [len(node.values) for node in nodes if (node.source, node.target) == way]


def test_what_is_there_goes_with_the_first(golden):
    golden(text_of(called, V, ipus=1, merged_host_bytes=1 << 20))


@pytest.mark.parametrize(
    ("most", "sizes"), [(0, [2, 1, 1]), (3 * 4095, [2, 1, 1]), (3 * 4096, [3, 1])]
)
def test_up_to_so_many_bytes(most, sizes):
    assert ways(lowered(called, PAGE, ipus=1, merged_host_bytes=most), 0, HOST) == sizes
    if most:
        other = lowered(called, PAGE, ipus=1, merged_copy_bytes=most)
        assert ways(other, 0, HOST) == [2, 1, 1]


def sharded(x):
    """The second IPU reads two arrays of the first."""
    with shard(0):
        first, second = jnp.sin(x), jnp.cos(x)
    with shard(1):
        return first * second


def split(program):
    """Each value between IPUs in a copy of its own, as if the readers were steps of their own."""

    def sequence(body):
        steps = []
        for node in body.steps:
            if isinstance(node, ir.Copy) and HOST not in (node.source, node.target):
                steps += [ir.Copy((value,), node.source, node.target) for value in node.values]
            else:
                steps.append(ir.rewrite_bodies(node, lambda inner: sequence(inner.sequence)))
        return ir.Sequence(tuple(steps))

    return dc.replace(program, body=sequence(program.body))


def test_copies_between_ipus():
    program = lowered(sharded, PAGE)
    apart = split(program)
    assert ways(apart, 0, 1) == [1, 1]
    assert ways(merge_copies(apart, 8191, 1 << 20), 0, 1) == [1, 1]
    merged = merge_copies(apart, 8192, 0)
    verify(merged)
    assert ir.to_text(merged) == ir.to_text(program)


def test_inside_loops():
    def fn(x):
        return lax.fori_loop(0, 3, lambda _, c: sharded(c), x)

    apart = split(lowered(fn, PAGE))
    assert ways(apart, 0, 1) == [1, 1]
    assert ways(merge_copies(apart, 1 << 20, 0), 0, 1) == [2]


def test_arguments_stay_where_they_are():
    """They are there before the first call: when they come costs nothing."""

    def fn(x, y):
        return called(x) * y

    program = lowered(fn, PAGE, PAGE, ipus=1, merged_host_bytes=1 << 20)
    assert ways(program, HOST, 0) == ways(lowered(fn, PAGE, PAGE, ipus=1), HOST, 0)
