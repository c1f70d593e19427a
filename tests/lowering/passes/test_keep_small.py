"""Small values stay where they are."""

from __future__ import annotations

import jax

from lowering.ops.storage import Storage, load, store
from lowering.passes.keep_small import keep_small
from tests.lowering.samples import V, jaxpr_text, trace

REMOTE = Storage(remote=True)


def nested(x):
    kept = store(x, REMOTE)
    table = store(x[:, None] * x, REMOTE)
    total = jax.lax.fori_loop(0, 3, lambda _, c: c + load(kept, REMOTE), x)
    return total @ load(table, REMOTE)


def test_only_what_is_large_is_stored(golden):
    golden(jaxpr_text(keep_small(trace(nested, V), V.size * V.dtype.itemsize + 1)))


def test_what_has_the_least_size_is_stored():
    closed = trace(nested, V)
    assert keep_small(closed, V.size * V.dtype.itemsize) is closed
