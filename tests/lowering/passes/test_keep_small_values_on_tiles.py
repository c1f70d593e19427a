"""Small values stay where they are."""

from __future__ import annotations

import jax
import pytest

from lowering.ground import Options
from lowering.ops import Storage, bring_from_storage, move_to_storage
from lowering.passes import keep_small_values_on_tiles
from tests.lowering.samples import V, jaxpr_text, trace

REMOTE = Storage(remote=True)


def least(size: int) -> Options:
    return Options(minimum_remote_bytes=size)


def nested(x):
    kept = move_to_storage(x, REMOTE)
    table = move_to_storage(x[:, None] * x, REMOTE)
    total = jax.lax.fori_loop(0, 3, lambda _, c: c + bring_from_storage(kept, REMOTE), x)
    return total @ bring_from_storage(table, REMOTE)


def test_only_what_is_large_is_stored(golden):
    golden(
        jaxpr_text(
            keep_small_values_on_tiles(trace(nested, V), least(V.size * V.dtype.itemsize + 1))
        )
    )


def test_what_has_the_least_size_is_stored():
    closed = trace(nested, V)
    assert keep_small_values_on_tiles(closed, least(V.size * V.dtype.itemsize)) is closed


@pytest.mark.parametrize("by_default", [False, True])
def test_what_nobody_asked_for_is_stored_where_there_is_something_to_store_it_in(by_default: bool):
    storage = Storage(remote=True, by_default=by_default)
    closed = trace(lambda x: bring_from_storage(move_to_storage(x, storage), storage) * 2, V)
    assert keep_small_values_on_tiles(closed, Options()) is closed
    without = jaxpr_text(keep_small_values_on_tiles(closed, Options(has_remote=False)))
    assert ("ipu_store" in without) != by_default
