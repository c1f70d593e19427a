from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering import marks
from lowering.passes import make_callbacks_on_first_replica
from tests.ipujax.feeding import configure
from tests.lowering.samples import V, jaxpr_text, trace


def noted(x):
    jax.debug.callback(lambda v: None, x)
    return x + 1


def test_callbacks_at_any_depth(golden):
    def fn(x):
        x = jax.jit(noted)(x)
        x = lax.scan(lambda c, _: (noted(c), None), x, None, length=2)[0]
        x = lax.cond(x[0] > 0, noted, jnp.sin, x)
        return lax.while_loop(lambda c: c[0] < 9, noted, x)

    golden(jaxpr_text(make_callbacks_on_first_replica(trace(fn, V), 2)))


def test_one_replica_calls_as_it_is_written():
    closed = trace(noted, V)
    assert make_callbacks_on_first_replica(closed, 1) is closed


def marked(x):
    with jax.named_scope(marks.write_mark(marks.EACH_REPLICA)):
        return noted(x)


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sin,
        marked,
        lambda x: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(V.shape, V.dtype), x),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    ],
)
def test_what_is_every_replicas_own_is_left_alone(fn):
    closed = trace(fn, V)
    assert make_callbacks_on_first_replica(closed, 4) is closed


HOST = jax.ShapeDtypeStruct((), jnp.float32)
METHODS = (None, "sequential", "expand_dims", "broadcast_all")


def branches(call, index, x):
    return lax.cond(index == 2, lambda: call("taken", x + index), lambda: call("not", x))


def switches(call, index, x):
    return lax.switch(index, [lambda i=i: call(f"way {i}", x) for i in range(3)])


def loops(call, index, x):
    return lax.while_loop(lambda y: call("tests", y) < index + 3, lambda y: call("runs", y), x)


def loops_with_branches(call, index, x):
    def step(y, _):
        return lax.cond(y > 2 + index, lambda: call("taken", y), lambda: y + 1), None

    return jax.jit(lambda: lax.scan(step, x, None, length=4)[0])()


COUNTS = {
    branches: {"taken": 1, "not": 3},
    switches: {"way 0": 1, "way 1": 1, "way 2": 2},
    loops: {"tests": 14, "runs": 10},
    loops_with_branches: {"taken": 3},
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("fn", COUNTS)
def test_replicas_call_where_they_get_to(fn, engine, method):
    """Four replicas on one device go different ways; each calls the host on its own way only."""
    configure(4)
    calls = Counter()

    def call(way, x):
        def host(y):
            calls[way] += 1
            return np.asarray(y, np.float32) + 1

        return jax.pure_callback(host, HOST, x, vmap_method=method)

    def program(x):
        own = fn(call, ipu.replication_ops.replication_index(), x)
        return ipu.cross_replica_ops.cross_replica_sum(own)

    wanted = sum(float(fn(lambda _, y: y + 1, jnp.int32(r), jnp.float32(1))) for r in range(4))
    assert ipu.compile(program, engine=engine)(np.float32(1)) == wanted
    assert calls == COUNTS[fn]


def test_tables_of_the_host_are_asked_by_those_who_get_there_only():
    """An index that is none in a branch that nobody takes is no error."""
    configure(4)
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    embedding = ipu.embedding_ops.create_host_embedding(
        "rows", (4, 3), np.float32, initializer=table
    )

    def program(i):
        return lax.cond(
            ipu.replication_ops.replication_index() > 5,
            lambda: embedding.lookup(i, clip_indices=False).sum(),
            lambda: jnp.float32(7),
        )

    with embedding.register():
        assert ipu.compile(program)(np.array([1, 9], np.int32)) == 7
