"""Normalisations with their gradients, against those of flax.

flax is no dependency of ipujax: without it (`pip install flax`) there are no rows.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row
from ipujax.normalization_ops import batch_norm, group_norm, layer_norm

IMAGES = (16, 32, 32, 64)
WORDS = (32, 128, 512)
TOKENS = (4096, 512)
MISSING = "left out: the rows of normalisations against flax; to have them, `pip install flax`"


def rows() -> list[Row]:
    """Statistics of groups, examples and batches; inputs, scale and offset have gradients."""
    if importlib.util.find_spec("flax") is None:
        print(MISSING, file=sys.stderr)
        return []
    linen = importlib.import_module("flax.linen")

    def neighbouring(x: Any, p: Any) -> Any:  # as flax groups channels
        return group_norm(x, 8, gamma=p["scale"], beta=p["bias"], strided_channel_grouping=False)

    return [
        _row(
            "group_norm, 8 groups / flax GroupNorm",
            IMAGES,
            neighbouring,
            linen.GroupNorm(8, epsilon=1e-6),
        ),
        _row(
            "group_norm, 8 strided groups / flax GroupNorm",
            IMAGES,
            lambda x, p: group_norm(x, 8, gamma=p["scale"], beta=p["bias"]),
            linen.GroupNorm(8, epsilon=1e-6),
        ),
        _row(
            "layer_norm / flax GroupNorm of one group",
            WORDS,
            lambda x, p: layer_norm(x, gamma=p["scale"], beta=p["bias"]),
            linen.GroupNorm(1, epsilon=1e-6),
        ),
        _row(
            "layer_norm of [4096, 512] / flax LayerNorm",
            TOKENS,
            lambda x, p: layer_norm(x, gamma=p["scale"], beta=p["bias"]),
            linen.LayerNorm(epsilon=1e-6),
        ),
        _row(
            "batch_norm / flax BatchNorm",
            IMAGES,
            lambda x, p: batch_norm(x, gamma=p["scale"], beta=p["bias"])[0],
            linen.BatchNorm(use_running_average=False, epsilon=1e-3),
        ),
    ]


def _row(what: str, shape: tuple[int, ...], ours: Any, theirs: Any) -> Row:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    variables = theirs.init(jax.random.key(0), x)
    others = {name: tree for name, tree in variables.items() if name != "params"}

    def flax(x: Any, parameters: Any) -> Any:
        out = theirs.apply({"params": parameters, **others}, x, mutable=list(others) or False)
        return out[0] if others else out

    def step(norm: Any) -> Any:
        def loss(x: Any, parameters: Any) -> Any:
            return jnp.sum(jnp.sin(norm(x, parameters)))

        return jax.grad(loss, (0, 1))

    mine: Any = ipu.compile(step(ours))
    baseline = jax.jit(step(flax))
    arguments = jnp.asarray(x), variables["params"]
    return row(
        what,
        1.05,
        lambda: jax.block_until_ready(mine(*arguments)),
        lambda: jax.block_until_ready(baseline(*arguments)),
        pairs=21,
    )
