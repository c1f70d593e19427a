"""Automatic loss scaling: a factor of the loss that follows how large gradients in float16 are.

The rule is that of PopART (`automaticlossscaling.hpp` and `lossscaleupdatex.cpp` of its sources):
gradients are counted in two bins, below and above a part of the greatest float16. If the upper bin
has more than a share of them, the factor is halved, else doubled.

The counts come from differentiation: `counted` is the identity, whose derivative by the factor is
a balance of the two bins. Balances of all gradients, micro-batches and replicas add up, or are
averaged, as the derivatives of a variable are, and only their sign matters.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ipujax.poptorch.checks import check

FACTOR = "lossScaleUpdateFactor"
"""The name of the factor. As the stages of a pipeline can share no variable, each has its own."""

_OPTION = "automaticLossScalingSettings."


@dc.dataclass(frozen=True)
class LossScaling:
    """What is counted, and when the factor changes; of types and ranges as PopART's options.

    Attributes:
      bin_edge: where the upper bin begins, as a part of the greatest float16.
      threshold: the share of gradients in the upper bin up to which the factor is doubled.
      period: how many weight updates there are for each update of the factor.
      of_products: whether only gradients of the operands of products and convolutions count, else
        those of all operators but views.
    """

    bin_edge: float = 0.125
    threshold: float = 1e-7
    period: int = 1
    of_products: bool = False

    def __post_init__(self) -> None:
        for name, value in (("binEdgeLocation", self.bin_edge),
                            ("thresholdUpperCountProportion", self.threshold)):  # fmt: skip
            if not 0 <= value <= 1:
                raise check.refuse(
                    f"Out of range value for '{name}'. The current value is {value}, but it should "
                    "be in the range [0, 1]."
                )
        check.integer(self.period, f"{_OPTION}updatePeriod", at_least=1)

    @property
    def weights(self) -> tuple[float, float]:
        """What a gradient in the lower and in the upper bin adds to the balance."""
        return -self.threshold, 1 - self.threshold


def loss_scaling_of(options: Mapping[str, Any]) -> LossScaling | None:
    """What PopART's options say; None without automatic loss scaling.

    Raises:
      PopTorchError: (a `ValueError`) a number that is out of its range.
    """
    if not options.get(f"{_OPTION}enabled", False):
        return None
    usual = LossScaling()
    return LossScaling(
        options.get(f"{_OPTION}binEdgeLocation", usual.bin_edge),
        options.get(f"{_OPTION}thresholdUpperCountProportion", usual.threshold),
        options.get(f"{_OPTION}updatePeriod", usual.period),
        options.get(f"{_OPTION}gradientTensorTrackingMethod", 0) == 1,
    )


def factor_name(stage: int) -> str:
    """The name of the factor that a stage reads, which is a variable beside the module's."""
    return f"{FACTOR}___{stage}"


def factors_in(named: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some values by name that belong to factors."""
    return {name: value for name, value in named.items() if name.startswith(f"{FACTOR}___")}


class Scale(NamedTuple):
    """What a program keeps of automatic loss scaling.

    Attributes:
      factor: by which the loss is multiplied besides the optimizer's `loss_scaling`, a float32.
      updates: weight updates so far, an int32.
    """

    factor: jax.Array
    updates: jax.Array

    @classmethod
    def begin(cls, factor: Any = 1.0) -> Scale:
        """Before the first weight update."""
        return cls(jnp.asarray(factor, jnp.float32).reshape(()), jnp.int32(0))

    def after(self, balance: jax.Array, settings: LossScaling) -> Scale:
        """After a weight update whose gradients were counted."""
        is_due = self.updates % settings.period == 0
        changed = self.factor * jnp.where(balance > 0, 0.5, 2.0)
        return Scale(jnp.where(is_due, changed, self.factor), self.updates + 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def counted(x: jax.Array, factor: jax.Array, settings: LossScaling) -> jax.Array:
    """A value in float16 whose gradient is counted.

    The gradient is cut off at the greatest float16, as it is on an IPU: an infinite one would make
    the weights infinite before the factor can change.

    Args:
      x: the value.
      factor: a float32 scalar, whose gradient is the balance of the bins.
      settings: what is counted.
    """
    del factor, settings
    return x


def _forward(x: jax.Array, factor: jax.Array, settings: LossScaling) -> tuple[jax.Array, None]:
    del factor, settings
    return x, None


def _backward(settings: LossScaling, _: None, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    greatest = float(jnp.finfo(gradient.dtype).max)
    is_low = jnp.abs(gradient).astype(jnp.float32) < greatest * settings.bin_edge
    low, high = settings.weights
    balance = jnp.sum(jnp.where(is_low, jnp.float32(low), jnp.float32(high)))
    return jnp.clip(gradient, -greatest, greatest), balance


counted.defvjp(_forward, _backward)
