"""CTC beam search, against one written with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from benchmarks.measure import Row, row

TIME, BATCH, CLASSES, WIDTH = 200, 16, 32, 16

Array = np.ndarray[Any, Any]


def rows() -> list[Row]:
    """Decoding a batch; the reach says five times as fast."""
    logits = np.random.default_rng(0).normal(size=(TIME, BATCH, CLASSES)).astype(np.float32)
    log_probs = jax.nn.log_softmax(jnp.asarray(logits))
    steps = np.full(BATCH, TIME, np.int32)
    host = np.asarray(log_probs)

    @jax.jit
    def ours(log_probs: Any) -> Any:
        return ipu.nn_ops.ctc_beam_search_decoder_with_log_probs(log_probs, steps, WIDTH)

    return [
        row(
            f"beam search, {WIDTH} beams / NumPy",
            0.2,
            lambda: jax.block_until_ready(ours(log_probs)),
            lambda: decode_batch(host, steps, WIDTH, 1, CLASSES - 1),
            pairs=5,
        )
    ]


def decode_batch(
    log_probs: Array, steps: Sequence[int] | Array, width: int, paths: int, blank: int
) -> list[list[tuple[tuple[int, ...], float]]]:
    """For each example of `[time, batch, classes]`, its best labels and log probabilities."""
    return [
        decode(log_probs[: steps[i], i], width, blank)[:paths] for i in range(log_probs.shape[1])
    ]


def decode(log_probs: Array, width: int, blank: int) -> list[tuple[tuple[int, ...], float]]:
    """Prefix beam search of `[time, classes]`; all beams and classes of a step at once."""
    classes = log_probs.shape[1]
    prefixes: list[tuple[int, ...]] = [()]
    in_blank, in_class = np.zeros(1), np.full(1, -np.inf)
    for now in log_probs:
        total = np.logaddexp(in_blank, in_class)
        longer = total[:, None] + now
        stays_in_class = np.full(len(prefixes), -np.inf)
        for i, prefix in enumerate(prefixes):
            if prefix:
                longer[i, prefix[-1]] = in_blank[i] + now[prefix[-1]]
                stays_in_class[i] = in_class[i] + now[prefix[-1]]
        longer[:, blank] = -np.inf
        number = {prefix: i for i, prefix in enumerate(prefixes)}
        for i, prefix in enumerate(prefixes):
            parent = number.get(prefix[:-1]) if prefix else None
            if parent is not None:
                more = longer[parent, prefix[-1]]
                stays_in_class[i] = np.logaddexp(stays_in_class[i], more)
                longer[parent, prefix[-1]] = -np.inf
        stays_in_blank = total + now[blank]
        stays = np.logaddexp(stays_in_blank, stays_in_class)
        offers = np.concatenate([stays, longer.ravel()])
        best = np.argsort(-offers, kind="stable")[:width]
        best = best[offers[best] > -np.inf]
        count = len(prefixes)
        grows = best >= count
        source = np.where(grows, (best - count) // classes, best)
        added = (best - count) % classes
        in_blank = np.where(grows, -np.inf, stays_in_blank[source])
        in_class = np.where(grows, offers[best], stays_in_class[source])
        prefixes = [
            (*prefixes[s], int(a)) if g else prefixes[s]
            for s, a, g in zip(source, added, grows, strict=True)
        ]
    return list(zip(prefixes, np.logaddexp(in_blank, in_class).tolist(), strict=True))
