"""PopART's own losses."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array

_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sum": jnp.sum,
    "Mean": jnp.mean,
    "None": lambda losses: losses,
}

_MIN_PROBABILITIES = {2: (6.104e-5, 6.104e-5), 4: (1e-7, 1e-10)}
"""For each element size in bytes: the lower bounds of probabilities in the log and its gradient."""


def reduce_losses(losses: Array, reduction: str) -> Array:
    check.require_one_of(reduction, tuple(_REDUCTIONS), "reduction")
    return _REDUCTIONS[reduction](losses)


@operator("ai.graphcore.L1")
def l1(x: Array, reduction: str = "Mean", **attributes: object) -> Array:
    """Returns magnitudes, with derivative 0 at 0, times `lambda`, which is a Python keyword."""
    magnitudes = x * jax.lax.stop_gradient(jnp.sign(x))
    return reduce_losses(magnitudes * jnp.asarray(attributes["lambda"], x.dtype), reduction)


@operator("ai.graphcore.Nll")
def nll(
    x: Array,
    target: Array,
    reduction: str = "Mean",
    ignoreIndex: int | None = None,
    inputIsLogProbability: int = 0,
) -> Array:
    """Computes the negative log likelihood of probabilities [..., classes] or their logarithms.

    The mean is over the labels that are not ignored, and zero if all are. A label that is no class
    has probability zero, or log probability zero.
    """
    x, target = jnp.asarray(x), jnp.asarray(target).astype(jnp.int32)
    is_class = (target >= 0) & (target < x.shape[-1])
    labels = jnp.where(is_class, target, 0)[..., None]
    label_values = jnp.where(is_class, jnp.take_along_axis(x, labels, -1)[..., 0], 0)
    counts = jnp.ones(target.shape, bool) if ignoreIndex is None else target != ignoreIndex
    losses = jnp.where(
        counts, -(label_values if inputIsLogProbability else _log_with_floor(label_values)), 0
    )
    if reduction == "Mean" and ignoreIndex is not None:
        return losses.sum() / jnp.maximum(counts.sum(), 1).astype(x.dtype)
    return reduce_losses(losses, reduction)


@jax.custom_jvp
def _log_with_floor(p: Array) -> Array:
    return jnp.log(jnp.maximum(p, _MIN_PROBABILITIES[p.dtype.itemsize][0]))


@_log_with_floor.defjvp
def _differentiate_log_with_floor(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    """Keeps a derivative where the log is clamped, or improbable labels would not be learned."""
    (p,), (change,) = primals, tangents
    return _log_with_floor(p), change / jnp.maximum(p, _MIN_PROBABILITIES[p.dtype.itemsize][1])


@operator("ai.graphcore.IdentityLoss")
def identity_loss(x: Array, reduction: str = "Mean") -> Array:
    return reduce_losses(jnp.asarray(x), reduction)
