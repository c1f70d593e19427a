from __future__ import annotations

import dataclasses as dc
import tracemalloc

import jax.numpy as jnp
from jax import lax

from lowering import compiler, ir
from lowering.ground import HOST, Options
from lowering.passes import insert_copies
from lowering.schedules import gpipe
from tests.lowering.pipelines.samples import dense, micro_batch, pipelined, squares
from tests.lowering.samples import V, X, lowered, shard, text_of


def copies(program):
    return [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]


def test_each_value_is_copied_once(golden):
    def fn(x):
        with shard(0):
            a, b = jnp.sin(x), jnp.cos(x)
        with shard(1):
            c = a + b
        with shard(0):
            d = c * 2
        with shard(1):
            return d + a + c

    golden(text_of(fn, V))


def test_what_a_loop_only_reads_is_copied_before_it(golden):
    table = jnp.arange(3.0)

    def fn(x, w):
        with shard(0):
            w = jnp.sin(w)

        def step(c, row):
            with shard(0):
                h = c * w
            with shard(1):
                return h + row + w + table, None

        return lax.scan(step, w, x)[0]

    golden(text_of(fn, X, V))


def test_loop_variables_change_ipu_inside_of_the_loop(golden):
    def fn(x):
        def step(c, _):
            with shard(0):
                a = c[0] + c[1]
            with shard(1):
                return (c[1] * 2, a), None

        return lax.scan(step, (x, x), None, length=3)[0]

    golden(text_of(fn, V))


def test_branches_bring_their_results_to_one_place(golden):
    def fn(x):
        def left(a):
            with shard(0):
                return jnp.sin(a)

        def right(a):
            with shard(1):
                return jnp.cos(a)

        return lax.cond(x[0] > 0, left, right, x)

    golden(text_of(fn, V))


def test_one_copy_per_route():
    def fn(x, y):
        with shard(0):
            values = [x + i * y for i in range(4)]
        with shard(1):
            return sum(values)

    routes = [(c.source, c.target, len(c.values)) for c in copies(lowered(fn, V, V))]
    assert routes == [(HOST, 0, 2), (0, 1, 4), (1, HOST, 1)]


def test_nothing_moves_without_need():
    program = lowered(lambda x: (x, x), V)
    assert program.body.steps == ()
    assert insert_copies(program) == program


def test_copies_can_be_made_anew():
    def fn(x):
        with shard(0):
            a = jnp.sin(x)
        with shard(1):
            return a * 2

    program = lowered(fn, V)
    bare = dc.replace(
        program,
        body=ir.Sequence(tuple(s for s in program.body.steps if not isinstance(s, ir.Copy))),
    )
    assert insert_copies(bare) == program


def test_memory_grows_with_the_stages_of_a_pipeline_not_with_their_square(monkeypatch):
    peaks = []

    def measure(program):
        tracemalloc.start()
        try:
            return insert_copies(program)
        finally:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    monkeypatch.setattr(compiler, "insert_copies", measure)
    for stages in (16, 64):
        body = micro_batch([*([dense] * (stages - 1)), squares])
        compiler.lower(pipelined(body, stages, schedule=gpipe), Options(num_ipus=64))
    assert peaks[1] < 5 * peaks[0]
