"""CTC loss with its gradient, against optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from benchmarks.measure import Row, row

TIME, BATCH, CLASSES, LONGEST = 200, 16, 32, 40
BLANK = 0


def rows() -> list[Row]:
    """Value and gradient of a batch's mean loss; each side takes the layout that it wants."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(TIME, BATCH, CLASSES)).astype(np.float32)
    labels = jnp.asarray(rng.integers(1, CLASSES, (BATCH, LONGEST)), jnp.int32)
    lengths = jnp.asarray(rng.integers(LONGEST // 2, LONGEST + 1, BATCH), jnp.int32)
    steps = jnp.asarray(rng.integers(TIME // 2, TIME + 1, BATCH), jnp.int32)
    steps_missing = (jnp.arange(TIME) >= steps[:, None]).astype(jnp.float32)
    labels_missing = (jnp.arange(LONGEST) >= lengths[:, None]).astype(jnp.float32)

    def ours(logits: Any) -> Any:
        return ipu.nn_ops.ctc_loss_v2(labels, logits, lengths, steps, BLANK).mean()

    def baseline(logits: Any) -> Any:
        return optax.ctc_loss(logits, steps_missing, labels, labels_missing, blank_id=BLANK).mean()

    time_major, batch_major = jnp.asarray(logits), jnp.asarray(logits.swapaxes(0, 1))
    mine = jax.jit(jax.value_and_grad(ours))
    theirs = jax.jit(jax.value_and_grad(baseline))
    return [
        row(
            "CTC loss and gradient / optax",
            1.0,
            lambda: jax.block_until_ready(mine(time_major)),
            lambda: jax.block_until_ready(theirs(batch_major)),
            pairs=31,
        )
    ]
