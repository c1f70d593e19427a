"""PopART's own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array

_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sum": jnp.sum,
    "Mean": jnp.mean,
    "None": lambda losses: losses,
}

_SMALLEST = {2: 6.104e-5, 4: 1e-7}
"""The least probabilities whose logarithms are taken, by their bytes."""


def reduced(losses: Array, reduction: str) -> Array:
    check.one_of(reduction, tuple(_REDUCTIONS), "reduction")
    return _REDUCTIONS[reduction](losses)


@operator("ai.graphcore.L1")
def l1(x: Array, reduction: str = "Mean", **attributes: Any) -> Array:
    """The magnitudes, whose derivative is 0 at 0, times `lambda`, which is no name in Python."""
    magnitudes = x * jax.lax.stop_gradient(jnp.sign(x))
    return reduced(magnitudes * jnp.asarray(attributes["lambda"], x.dtype), reduction)


@operator("ai.graphcore.Nll")
def nll(
    x: Array,
    target: Array,
    reduction: str = "Mean",
    ignoreIndex: int | None = None,
    inputIsLogProbability: int = 0,
) -> Array:
    """Of probabilities [..., classes], or their logarithms; the mean is of those that count."""
    x, target = jnp.asarray(x), jnp.asarray(target).astype(jnp.int32)
    logs = x if inputIsLogProbability else jnp.log(jnp.maximum(x, _SMALLEST[x.dtype.itemsize]))
    counts = jnp.ones(target.shape, bool) if ignoreIndex is None else target != ignoreIndex
    labels = jnp.where(counts, target, 0)[..., None]
    losses = -jnp.take_along_axis(logs, labels, -1, mode="clip")[..., 0]
    losses = jnp.where(counts, losses, 0).astype(x.dtype)
    if reduction == "Mean" and ignoreIndex is not None:
        return losses.sum() / counts.sum().astype(x.dtype)
    return reduced(losses, reduction)


@operator("ai.graphcore.IdentityLoss")
def identity_loss(x: Array, reduction: str = "Mean") -> Array:
    return reduced(jnp.asarray(x), reduction)
