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

_SMALLEST = {2: (6.104e-5, 6.104e-5), 4: (1e-7, 1e-10)}
"""The least probabilities whose logarithms are taken, and divided by, by their bytes."""


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
    """Of probabilities [..., classes], or their logarithms; the mean is of those that count.

    Where none counts, the mean is zero. A label that is no class has the probability of zero, or
    its logarithm.
    """
    x, target = jnp.asarray(x), jnp.asarray(target).astype(jnp.int32)
    is_class = (target >= 0) & (target < x.shape[-1])
    labels = jnp.where(is_class, target, 0)[..., None]
    picked = jnp.where(is_class, jnp.take_along_axis(x, labels, -1)[..., 0], 0)
    counts = jnp.ones(target.shape, bool) if ignoreIndex is None else target != ignoreIndex
    losses = jnp.where(counts, -(picked if inputIsLogProbability else _log(picked)), 0)
    if reduction == "Mean" and ignoreIndex is not None:
        return losses.sum() / jnp.maximum(counts.sum(), 1).astype(x.dtype)
    return reduced(losses, reduction)


@jax.custom_jvp
def _log(p: Array) -> Array:
    return jnp.log(jnp.maximum(p, _SMALLEST[p.dtype.itemsize][0]))


@_log.defjvp
def _of_log(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """It has a derivative where it is cut off, or what is improbable would not be learned."""
    (p,), (change,) = primals, tangents
    return _log(p), change / jnp.maximum(p, _SMALLEST[p.dtype.itemsize][1])


@operator("ai.graphcore.IdentityLoss")
def identity_loss(x: Array, reduction: str = "Mean") -> Array:
    return reduced(jnp.asarray(x), reduction)
