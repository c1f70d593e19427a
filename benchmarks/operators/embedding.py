"""The gradient of an embedding, against JAX's indexing, and the memory of a host embedding."""

from __future__ import annotations

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row

TABLE = (16384, 256)
TOKENS = (32, 128)
ON_HOST = (1 << 22, 128)  # 2 GiB of float32
BEYOND = 300 << 20


def rows() -> list[Row]:
    """Value and gradient of a sum over looked-up rows; the peak of a step's memory."""
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=TABLE), jnp.float32)
    ids = jnp.asarray(rng.integers(0, TABLE[0], TOKENS), jnp.int32)
    weights = jnp.asarray(rng.normal(size=(*TOKENS, TABLE[1])), jnp.float32)

    def gradient(lookup: Any) -> Any:
        return jax.jit(jax.grad(lambda table, ids: jnp.sum(lookup(table, ids) * weights)))

    ours = gradient(ipu.embedding_ops.embedding_lookup)
    plain = gradient(lambda table, ids: table[ids])
    return [
        row(
            "embedding gradient / table[ids]",
            1.05,
            lambda: jax.block_until_ready(ours(table, ids)),
            lambda: jax.block_until_ready(plain(table, ids)),
            pairs=51,
        ),
        _memory(),
    ]


def _memory() -> Row:
    # A process of its own has a peak of its own.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        extra = pool.submit(_extra_bytes).result()
    what = "host embedding step, 2-GiB table: memory beyond it / 300 MiB"
    return Row(what, extra / BEYOND, 1.0, f"{extra / 2**20:.0f} MiB")


def _extra_bytes() -> int:
    """How much the peak of the process's memory grows by a compilation and three steps."""
    ops = ipu.embedding_ops
    spec = ops.HostEmbeddingOptimizerSpec(0.1)
    embedding = ops.create_host_embedding(
        "large", ON_HOST, jnp.float32, optimizer_spec=spec, initializer=1.0
    )
    rng = np.random.default_rng(0)
    ids = jnp.asarray(rng.integers(0, ON_HOST[0], TOKENS), jnp.int32)

    def loss(handle: Any, ids: Any) -> Any:
        return jnp.sum(embedding.lookup(ids, handle=handle) ** 2)

    step = ipu.compile(jax.grad(loss))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with embedding.register():
        for _ in range(3):
            step(embedding.handle, ids).block_until_ready()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
