"""The parts of a program that several processes run."""

from __future__ import annotations

from collections import Counter

import jax.numpy as jnp
import pytest
from jax import lax

from lowering import ir
from lowering.ground import HOST
from lowering.ir import part_of_process
from tests.lowering.samples import S, V, lowered, shard


def sharded(x, limit):
    with shard(0):
        start = x * 2

    def more(state):
        with shard(1):
            return jnp.sum(state) < limit

    def step(state):
        with shard(1):
            half = jnp.sin(state)
        with shard(0):
            return half + state

    return lax.while_loop(more, step, start)


def messages(program: ir.Program, kind: type) -> Counter[tuple[int, int, tuple[int, ...]]]:
    found = (node for node in ir.walk_nodes(program.body) if isinstance(node, kind))
    return Counter((node.process, node.channel, node.values) for node in found)


def test_each_process_has_its_own_steps(golden):
    program = lowered(sharded, V, S)
    parts = [part_of_process(program, (0, 1), 2, here).program for here in range(2)]
    for part in parts:
        ir.verify(part)
    golden("\n".join(map(ir.to_text, parts)))


def test_whoever_has_no_ipu_gets_the_results():
    program = lowered(lambda x: x + 1, V)
    part = part_of_process(program, (0,), 2, 1).program
    ir.verify(part)
    (received,) = part.body.steps
    assert isinstance(received, ir.Receive)
    assert (received.target, received.values) == (HOST, program.outputs)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_is_sent_is_received(count):
    program = lowered(sharded, V, S, ipus=4)
    owners = tuple(ipu * count // program.ipus for ipu in range(program.ipus))
    parts = [part_of_process(program, owners, count, here).program for here in range(count)]
    sent = Counter(
        {(here, *key): n for here, p in enumerate(parts) for key, n in messages(p, ir.Send).items()}
    )
    received = Counter(
        {
            (process, here, *key): n
            for here, p in enumerate(parts)
            for (process, *key), n in messages(p, ir.Receive).items()
        }
    )
    assert sent == received
    kernels = [n for p in parts for n in ir.walk_nodes(p.body) if isinstance(n, ir.Execute)]
    assert Counter(map(id, kernels)) == Counter(
        id(n) for n in ir.walk_nodes(program.body) if isinstance(n, ir.Execute)
    )


def test_a_value_is_sent_before_its_process_goes_on():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
            b = jnp.cos(lax.optimization_barrier(x) * 3)
        with shard(1):
            c = a * 2
        with shard(0):
            return b + c

    steps = part_of_process(lowered(fn, V), (0, 1), 2, 0).program.body.steps
    made = {value: n for n, step in enumerate(steps) for value, _ in ir.places_of_writes(step)}
    for number, step in enumerate(steps):
        if isinstance(step, ir.Send):
            assert number - max(made[value] for value in step.values) == 1
