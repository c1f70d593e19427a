from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.units import HOST
from tests.lowering.samples import N, V, lowered, shard


def dead(program):
    results = [(value, HOST) for value in program.outputs]
    return ir.dead_after(program.body, results, ir.Needs(ir.homes(program)))


def test_values_die_after_their_last_reader():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            b = a * 2
        with shard(0):
            return b + 1

    program = lowered(fn, V)
    for index, gone in enumerate(dead(program)):
        later = program.body.steps[index + 1 :]
        read = {place for node in later for place in ir.Needs()(node)}
        assert not read & set(gone)
    died = {place for gone in dead(program) for place in gone}
    assert (program.outputs[0], HOST) not in died
    assert len(died) == 6  # both of x's, a's and b's copies on IPUs, and the result's first home


def test_what_steers_a_branch_lives_until_it_is_read():
    def fn(x, n):
        with shard(0):
            go, index, times = x.sum() > 9, n + 1, n * 2

        def body(c):
            with shard(0):
                a = c + 1
            with shard(1):
                return a * 2

        x = lax.while_loop(lambda c: go, body, x)
        x = lax.switch(index, [body, jnp.sin], x)
        return lax.fori_loop(0, times, lambda _, c: body(c), x)

    program = lowered(fn, V, N)
    homes = ir.homes(program)
    gone: set[ir.Place] = set()
    for node, died in zip(program.body.steps, dead(program), strict=True):
        steering = [getattr(node, name, None) for name in ("index", "predicate", "trips")]
        assert not {(v, homes[v]) for v in steering if v is not None} & gone
        gone |= set(died)


def test_homes_are_where_values_are_written():
    def fn(x):
        with shard(1):
            return jnp.sin(x)

    program = lowered(fn, V)
    assert ir.homes(program) == {program.inputs[0]: HOST, program.outputs[0]: 1}


def test_carried_once():
    def loop(c, other):
        def step(d, _):
            with shard(0):
                h = d + other
            with shard(1):
                return h * 2, None

        return lax.scan(step, c, None, length=2)[0]

    def names(fn):
        program = lowered(fn, V, V)
        return [program.inputs.index(value) for value in ir.carried_once(program)]

    assert names(lambda x, y: loop(x, y)) == [0]
    assert names(lambda x, y: (loop(x, y), x)) == []
    assert names(lambda x, y: (loop(x, y), loop(x, y))) == []
    assert names(lambda x, y: loop(x, x)) == []
    assert names(lambda x, y: loop(x, loop(y, y * 0) * 0)) == [0]
