"""Gradients of vertices, which vertices on the same tiles compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.tiles.map_operands import MapOperands, OnTiles, plain_operands
from ipujax.tiles.placed_calls import Arrays
from ipujax.tiles.vertices import Vertex

Rule = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def run_gradient(
    name: str,
    given: OnTiles,
    run: Callable[..., Sequence[Any]],
    results: Sequence[Any],
    cotangents: Arrays,
    rule: Rule | None,
    run_function: Callable[[MapOperands], Any],
) -> list[jax.Array | None]:
    """Returns the cotangents of arrays that a vertex is mapped over.

    Args:
      name: of the vertex.
      given: the arrays.
      run: the arrays of one tile -> the leaves of the result, for JAX to differentiate.
      results: the shapes and dtypes of these.
      cotangents: of these, [tiles, ...].
      rule: arrays of one tile, cotangents of the leaves -> cotangents of the arrays, without those
        that were closed over; None for JAX's own.
      run_function: runs a map of a function.
    """
    count, places = len(given.arrays), _real_places(given.arrays)
    known = _real_places(results)

    def gradient(*arrays: Any) -> list[Any]:
        of_results: list[Any] = [np.zeros(each.shape, jax.dtypes.float0) for each in results]
        for n, array in zip(known, arrays[count:], strict=True):
            of_results[n] = array
        return _differentiate(run, arrays[:count], of_results, places, rule)

    arrays = (*given.arrays, *(cotangents[n] for n in known))
    homes = (*given.homes, *[given.tiles] * len(known))
    mapped = plain_operands(
        Vertex(gradient, f"{name}_gradient"), OnTiles(given.tiles, arrays, homes)
    )
    found: list[jax.Array | None] = [None] * count
    for n, value in zip(places, run_function(mapped), strict=True):
        found[n] = value.array if given.homes[n] is not None else value.array.sum(0)
    return found


def _real_places(values: Sequence[Any]) -> list[int]:
    return [n for n, each in enumerate(values) if jnp.issubdtype(each.dtype, jnp.floating)]


def _differentiate(
    run: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    cotangents: Sequence[Any],
    places: Sequence[int],
    rule: Rule | None,
) -> list[Any]:
    """Returns the cotangents of some of one tile's arrays, by the vertex's rule or by JAX."""
    if rule is not None:
        by_array = dict(enumerate(rule(arrays, cotangents)))
        known = [by_array.get(n) for n in places]
        return [
            jnp.zeros_like(arrays[n]) if each is None else each
            for n, each in zip(places, known, strict=True)
        ]

    def run_chosen(*chosen: Any) -> list[Any]:
        now = list(arrays)
        for n, array in zip(places, chosen, strict=True):
            now[n] = array
        return list(run(*now))

    _, pull = jax.vjp(run_chosen, *(arrays[n] for n in places))
    return list(pull(list(cotangents)))
