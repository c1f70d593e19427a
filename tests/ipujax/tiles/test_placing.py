"""Arrays on tiles: numbers, tiles, and the exchanges that bring them there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import tiles

T = (3, 5, 8)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def report_of(function: Any, *arguments: Any) -> Any:
    return ipu.compile(function).lower(*arguments).compile().report()


def received(report: Any, name: str) -> dict[int, int]:
    """The bytes that tiles receive in the one exchange of a name."""
    (found,) = [each for each in report.exchanges if each.name == name]
    return {int(t): int(found.received_bytes[t]) for t in np.flatnonzero(found.received_bytes)}


def everything(x: jax.Array, w: jax.Array) -> dict[str, tiles.TileArray]:
    placed = tiles.put_sharded(x, T)
    return {
        "sharded": placed,
        "replicated": tiles.put_replicated(w, (1, 9)),
        "constant": tiles.constant_sharded(X + 1, T),
        "gathered": tiles.gather(placed, (1, 1, 0), (9, 5, 0)),
    }


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, ipu.compile])
def test_values_and_tiles(transform: Any) -> None:
    w = np.arange(2, dtype=np.int32)
    found = transform(everything)(X, w)
    expected = {
        "sharded": (X, T),
        "replicated": (np.stack([w, w]), (1, 9)),
        "constant": (X + 1, T),
        "gathered": (X[[1, 1, 0]], (9, 5, 0)),
    }
    for name, (array, where) in expected.items():
        assert found[name].tiles == where
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name].array, array)


def test_exchanges_have_the_bytes_that_tiles_lack() -> None:
    report = report_of(everything, X, np.arange(2, dtype=np.int32))
    assert received(report, "put_sharded") == {3: 16, 5: 16, 8: 16}
    assert received(report, "put_replicated") == {1: 8, 9: 8}
    assert received(report, "gather") == {9: 16, 0: 16}  # row 1 is on tile 5 already


def test_rows_that_are_there_are_not_exchanged() -> None:
    def keep(x: jax.Array) -> tiles.TileArray:
        return tiles.gather(tiles.put_sharded(x, T), (0, 1, 2), T)

    assert {each.name for each in report_of(keep, X).exchanges} == {"put_sharded"}


def test_a_barrier_gives_values_back() -> None:
    def wait(x: jax.Array) -> Any:
        a, b = tiles.put_sharded(x, T), tiles.put_replicated(x, (0, 1))
        return tiles.barrier(a, b), tiles.barrier(a)

    (a, b), alone = ipu.compile(wait)(X)
    np.testing.assert_array_equal(a.array, X)
    np.testing.assert_array_equal(b.array[1], X)
    assert (a.tiles, b.tiles, alone.tiles) == (T, (0, 1), T)


def test_gradients_of_placing_are_those_of_indexing() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        placed = tiles.gather(tiles.put_sharded(x, T), (2, 2, 0), T)
        return (placed.array**2).sum() + (tiles.put_replicated(w, T).array * placed.array).sum()

    def plain(x: jax.Array, w: jax.Array) -> jax.Array:
        rows = x[jnp.array([2, 2, 0])]
        return (rows**2).sum() + (w * rows).sum()

    w = np.arange(4, dtype=np.float32)
    expected = jax.grad(plain, (0, 1))(X, w)
    for transform in (jax.jit, ipu.compile):
        for found, wanted in zip(transform(jax.grad(loss, (0, 1)))(X, w), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_value_is_a_pytree_that_keeps_its_tiles() -> None:
    placed = tiles.put_sharded(X, T)
    assert jax.tree.leaves(placed)[0] is placed.array
    doubled = jax.vmap(lambda row: jax.tree.map(lambda array: array * 2, row))(placed)
    assert doubled.tiles == T
    np.testing.assert_array_equal(doubled.array, X * 2)
    np.testing.assert_array_equal(np.asarray(placed), X)
    assert (placed.shape, placed.size, placed.ndim, len(placed)) == ((3, 4), 12, 2, 3)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda: tiles.put_sharded(X, (1, 2)), "3 rows .* 2 tiles"),
        (lambda: tiles.put_sharded(np.float32(1), (1,)), "no rows"),
        (lambda: tiles.put_sharded(X, (1, 2, 2)), "tile 2 is given twice"),
        (lambda: tiles.put_replicated(X, (1, 1472)), "tile 1472 does not exist"),
        (lambda: tiles.put_replicated(X, (-1,)), "tile -1 does not exist"),
        (lambda: tiles.put_replicated(X, (1.5,)), "sequence of integers"),
        (lambda: tiles.put_sharded(X.astype(jnp.bfloat16), T), "bfloat16"),
        (lambda: tiles.gather(X, (0, 3), (0, 1)), "index 3 of an array of 3 rows"),
        (lambda: tiles.gather(X, (0,), (0, 1)), "1 rows"),
        (lambda: tiles.TileArray(X, (0, 1)), "3 rows"),
        (lambda: tiles.barrier(X), "values on tiles"),  # type: ignore[arg-type]
        (lambda: jax.jit(lambda x: tiles.constant_sharded(x, T))(X), "use put_sharded"),
        (lambda: jax.vmap(lambda x: tiles.put_sharded(x, T))(X[None]), "vmap"),
    ],
)
def test_what_is_wrong_is_said_with_the_users_line(place: Any, words: str) -> None:
    with pytest.raises(ipu.poplar.poplar_error, match=words) as caught:
        place()
    assert "test_placing.py" in str(caught.value)
