from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.ground import HOST
from lowering.ops import dequeue
from tests.lowering.samples import N, Queue, V, lowered, shard


def dead(program):
    results = [(value, HOST) for value in program.outputs]
    return ir.find_dead_values_after_steps(
        program.body, results, ir.PlacesOfReads(ir.ipu_of_each_value(program))
    )


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
        read = {place for node in later for place in ir.PlacesOfReads()(node)}
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
    homes = ir.ipu_of_each_value(program)
    gone: set[ir.Place] = set()
    for node, died in zip(program.body.steps, dead(program), strict=True):
        steering = [getattr(node, name, None) for name in ("index", "predicate", "trips")]
        assert not {(v, homes[v]) for v in steering if v is not None} & gone
        gone |= set(died)


def test_loop_variables_die_inside_if_they_are_said_to_enter():
    """a's last reader makes b, b's makes what the next iteration starts with."""

    def fn(x, y):
        def step(c, _):
            a, b = c
            with shard(0):
                d = a * 2
            with shard(1):
                return (d + b, b), None

        return lax.scan(step, (x, y), None, length=3)[0]

    (loop,) = (n for n in lowered(fn, V, V).body.steps if isinstance(n, ir.Repeat))
    entering = [(carry.entering, carry.ipu) for carry in loop.carry]
    results = [(carry.leaving, carry.ipu) for carry in loop.carry]
    without = ir.find_dead_values_after_steps(loop.body, results, ir.PlacesOfReads())
    within = ir.find_dead_values_after_steps(loop.body, results, ir.PlacesOfReads(), entering)
    assert not {place for gone in without for place in gone} & set(entering)
    for node, less, more in zip(loop.body.steps, without, within, strict=True):
        new = set(more) - set(less)
        assert set(less) <= set(more)
        assert new <= set(entering) & set(ir.PlacesOfReads()(node))
    died = [place for gone in within for place in gone]
    assert len(died) == len(set(died))
    needed_next = set(results)
    read = {place for node in loop.body.steps for place in ir.PlacesOfReads()(node)}
    assert set(died) & set(entering) == (set(entering) & read) - needed_next
    assert set(died) & set(entering)


def test_a_variable_that_nobody_reads_does_not_die():
    """There is no step after which it could: it lives as long as the body."""
    empty = ir.Sequence(())
    assert ir.find_dead_values_after_steps(empty, [], ir.PlacesOfReads(), [(0, 0)]) == []


def test_homes_are_where_values_are_written():
    def fn(x):
        with shard(1):
            return jnp.sin(x)

    program = lowered(fn, V)
    assert ir.ipu_of_each_value(program) == {program.inputs[0]: HOST, program.outputs[0]: 1}


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
        return [
            program.inputs.index(value) for value in ir.find_values_carried_by_one_loop(program)
        ]

    assert names(lambda x, y: loop(x, y)) == [0]
    assert names(lambda x, y: (loop(x, y), x)) == []
    assert names(lambda x, y: (loop(x, y), loop(x, y))) == []
    assert names(lambda x, y: loop(x, x)) == []
    assert names(lambda x, y: loop(x, loop(y, y * 0) * 0)) == [0]


def overwritable(fn, *args, donated=()):
    program = lowered(fn, *args)
    results = [(value, HOST) for value in program.outputs]
    body = ir.Sequence(ir.inline_tasks(program.body.steps))
    given = [program.inputs[number] for number in donated]
    steps = zip(body.steps, ir.find_overwritable_operands(body, results, given), strict=True)
    return [places for node, places in steps if isinstance(node, ir.Execute)], program


def in_turn(x):
    with shard(0):
        a = jnp.sin(x)
    with shard(1):
        b = a * 2
    with shard(0):
        return b + 1


def test_kernels_overwrite_what_nobody_reads_later():
    (first, second, third), program = overwritable(in_turn, V)
    assert not first  # the caller's
    assert [ipu for _, ipu in (*second, *third)] == [1, 0]
    assert not {value for value, _ in (*second, *third)} & {*program.inputs, *program.outputs}


def test_kernels_overwrite_donated_arguments():
    (first, *_), program = overwritable(in_turn, V, donated=[0])
    assert first == {(program.inputs[0], 0)}


def test_what_is_read_later_on_another_ipu_is_not_overwritten():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            b = a * 2
        with shard(0):
            return b + a  # IPUs 0 and 1 may be one device

    (_, second, third), _ = overwritable(fn, V)
    assert not second
    assert len(third) == 1  # one result, and two operands of its type


def test_results_and_operands_of_loops_are_not_overwritten():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            b = a * 2
        looped, _ = lax.scan(lambda c, _: (c + 1, None), a, None, length=3)
        with shard(0):
            return a, looped + a, b + 1

    steps, program = overwritable(fn, V)
    taken = {value for places in steps for value, _ in places}
    assert not taken & set(program.outputs)


def test_an_operand_of_another_type_is_not_overwritten():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            return (a * 2).sum()

    (_, second), _ = overwritable(fn, V)
    assert not second


def test_loop_variables_are_overwritten_after_the_last_element_only():
    def body(_, carry):
        (element,) = dequeue(Queue("in"), [jax.typeof(V)])
        x, y = carry
        return x + element, y * element

    program = lowered(lambda x, y: lax.fori_loop(0, 3, body, (x, y)), V, V)
    (node,) = (n for n in ir.walk_nodes(program.body) if isinstance(n, ir.Repeat))
    x, y = node.carry[-2:]
    assert ir.find_overwritable_loop_variables(node, {x.initial}) == {x.entering}
    assert ir.find_overwritable_loop_variables(node, {x.initial, y.initial}) == {
        x.entering,
        y.entering,
    }
    taken_last = dc.replace(node, body=ir.Sequence(node.body.steps[::-1]))
    assert not ir.find_overwritable_loop_variables(taken_last, {x.initial, y.initial})
