"""What tests of host embeddings share; NumPy is the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ipujax.embedding_ops import HostEmbedding, HostEmbeddingSGDGAOptimizerSpec

ROWS, COLUMNS, RATE = 7, 3, 0.1
FIRST = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
BATCHES = [np.array([i % 7, (i * 3) % 7, 2], np.int32) for i in range(20)]


def trained(factor: int = 1, rate: float = RATE, dtype: Any = np.float32) -> HostEmbedding:
    spec = HostEmbeddingSGDGAOptimizerSpec(rate, factor)
    return HostEmbedding("words", FIRST.astype(dtype), optimizer_spec=spec)


def squares(embedding: HostEmbedding) -> Callable[..., Any]:
    """A loss whose gradient by a row is the row, each time that it is looked up."""

    def loss(handle: Any, ids: Any) -> Any:
        rows = embedding.lookup(ids, handle=handle)
        return jnp.sum(rows.astype(jnp.float32) ** 2) / 2

    return loss


def updated(table: Any, *batches: Any, rate: float = RATE) -> Any:
    """The table after the gradients of `squares` for all batches at once."""
    gradient = np.zeros_like(table)
    for ids in batches:
        np.add.at(gradient, ids, table[ids])
    return table - rate * gradient


def one_by_one(table: Any, batches: Sequence[Any], rate: float = RATE) -> Any:
    for ids in batches:
        table = updated(table, ids, rate=rate)
    return table


def is_table(embedding: HostEmbedding, table: Any, tolerance: float = 1e-5) -> None:
    now = embedding.get_embedding_tensor()
    np.testing.assert_allclose(now, table, rtol=tolerance, atol=tolerance)
