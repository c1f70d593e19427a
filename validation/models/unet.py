"""The UNet of Graphcore's medical example (unet_medical/tensorflow2): 572x572, valid padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from validation.models.layers import conv, cross_entropy, pool
from validation.models.variables import Variables

Part = Callable[[Variables, Any], Any]

SIDE, OUTPUT_SIDE = 572, 388
CHANNELS = (64, 128, 256, 512)


def parts() -> list[Part]:
    """Levels down, the bottom, levels up; each takes (x, what waits) and gives the same."""
    down: list[Part] = [lambda v, s, c=c: _down(v / f"down{c}", s, c) for c in CHANNELS]
    bottom: Part = lambda v, s: (_twice(v / "bottom", s[0], 1024), *s[1:])  # noqa: E731
    up: list[Part] = [lambda v, s, c=c: _up(v / f"up{c}", s, c) for c in CHANNELS[::-1]]
    return [*down, bottom, *up, lambda v, s: (conv(v / "classes", s[0], 2),)]


def loss(logits: Any, labels: Any) -> Any:
    """The mean over the pixels."""
    return cross_entropy(logits, labels)


def _twice(v: Variables, x: Any, channels: int) -> Any:
    x = jax.nn.relu(conv(v / "1", x, channels, 3, padding="VALID") + v("b1", channels))
    return jax.nn.relu(conv(v / "2", x, channels, 3, padding="VALID") + v("b2", channels))


def _down(v: Variables, state: Any, channels: int) -> Any:
    x, *waiting = state
    x = _twice(v, x, channels)
    return (pool(x, 2, 2, "VALID"), *waiting, x)


def _up(v: Variables, state: Any, channels: int) -> Any:
    x, *waiting, kept = state
    x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
    x = conv(v / "widen", x, channels, 2)
    edge = (kept.shape[1] - x.shape[1]) // 2
    kept = kept[:, edge : edge + x.shape[1], edge : edge + x.shape[2]]
    return (_twice(v, jnp.concatenate([kept, x], -1), channels), *waiting)
