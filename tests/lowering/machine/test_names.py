"""Which values of a program are one tensor."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.machine import map_evenly, map_linearly
from lowering.machine.kernels import TensorLayout
from lowering.machine.programs import SharedLayouts
from lowering.ops import Storage, bring_from_storage, move_to_storage
from tests.lowering.samples import N, V, lowered, shard

HERE = TensorLayout(map_evenly(3, 4, 2, 16, layout="plan"))
ELSEWHERE = TensorLayout(map_linearly(3, 4, 16))


def nodes(program, kind):
    return [node for node in ir.walk_nodes(program.body) if isinstance(node, kind)]


def test_the_first_to_lay_out_decides():
    program = lowered(lambda x: x * 2, V, ipus=1)
    names = SharedLayouts(program, {})
    place = (program.inputs[0], 0)
    assert names.layout_on_ipu(place) is None
    assert names.set_default_layout(place, HERE) is HERE
    assert names.set_default_layout(place, ELSEWHERE) is HERE
    assert names.layout_on_ipu(place) is HERE
    assert names.layout_on_ipu((program.outputs[0], 0)) is None


def looping(x):
    def step(c, _):
        with shard(0):
            a = c * 2
        with shard(1):
            return a + 1, a

    return lax.scan(step, x, None, length=3)


def test_a_loop_variable_has_one_layout():
    program = lowered(looping, V)
    (loop,) = nodes(program, ir.Repeat)
    (carry,) = loop.carry
    names = SharedLayouts(program, {})
    names.set_default_layout((carry.final, carry.ipu), HERE)
    assert names.layout_on_ipu((carry.initial, carry.ipu)) is HERE
    assert names.layout_on_ipu((carry.entering, carry.ipu)) is HERE
    # What an iteration leaves may lie otherwise, and is then rearranged.
    assert names.layout_on_ipu((carry.leaving, carry.ipu)) is None
    assert all(names.layout_on_ipu((stack.stacked, stack.ipu)) is None for stack in loop.stacks)


def test_a_while_loops_variables_too():
    def fn(x, n):
        def body(c):
            with shard(0):
                i = c[0] + 1
            with shard(1):
                return i, c[1] * 2

        return lax.while_loop(lambda c: c[0] < n, body, (jnp.int32(0), x))

    program = lowered(fn, V, N)
    (loop,) = nodes(program, ir.While)
    names = SharedLayouts(program, {})
    for carry in loop.carry:
        names.set_default_layout((carry.entering, carry.ipu), HERE)
        assert names.layout_on_ipu((carry.initial, carry.ipu)) is HERE
        assert names.layout_on_ipu((carry.final, carry.ipu)) is HERE


def test_copies_keep_the_tile_of_every_element():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            return a * 2

    program = lowered(fn, V)
    (copy,) = (n for n in nodes(program, ir.Copy) if (n.source, n.target) == (0, 1))
    names = SharedLayouts(program, {})
    names.set_default_layout((copy.values[0], 1), HERE)
    assert names.layout_on_ipu((copy.values[0], 0)) is HERE


def test_arguments_on_two_ipus_are_two_tensors():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            return jnp.cos(x), a

    program = lowered(fn, V)
    names = SharedLayouts(program, {})
    names.set_default_layout((program.inputs[0], 0), HERE)
    assert names.layout_on_ipu((program.inputs[0], 1)) is None


def test_what_is_stored_comes_back_as_it_was():
    remote = Storage(remote=True)

    def fn(x):
        return bring_from_storage(move_to_storage(x * 2, remote), remote) + 1

    program = lowered(fn, V, ipus=1)
    (stored,), (loaded,) = nodes(program, ir.Store), nodes(program, ir.Load)
    names = SharedLayouts(program, {})
    names.set_default_layout((stored.value, 0), HERE)
    assert names.layout_on_ipu((loaded.value, 0)) is HERE


def test_long_chains_of_names():
    """Loops after loops pass one tensor on; looking it up stays cheap."""

    def fn(x):
        for _ in range(60):
            x = looping(x)[0]
        return x

    program = lowered(fn, V)
    names = SharedLayouts(program, {})
    loops = nodes(program, ir.Repeat)
    assert len(loops) == 60
    names.set_default_layout((loops[-1].carry[0].final, loops[-1].carry[0].ipu), HERE)
    assert names.layout_on_ipu((loops[0].carry[0].initial, loops[0].carry[0].ipu)) is HERE
