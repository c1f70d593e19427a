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
import optax

from ipujax.checks.arguments import Checks

FACTOR = "lossScaleUpdateFactor"
"""The name of the factor. As the stages of a pipeline can share no variable, each has its own."""


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

    def check_ranges(self, check: Checks) -> None:
        """Refuses numbers that are out of range, with the errors of a front end."""
        for where, name, value in (
            ("[AutomaticLossScale transform] ", "binEdgeLocation", self.bin_edge),
            ("", "thresholdUpperCountProportion", self.threshold),
        ):
            if not 0 <= value <= 1:
                raise check.refuse(
                    f"{where}Out of range value for '{name}'. The current value is {value}, but it "
                    "should be in the range [0, 1]."
                )
        check.integer(self.period, "automaticLossScalingSettings.updatePeriod", at_least=1)

    @property
    def weights(self) -> tuple[float, float]:
        """What a gradient in the lower and in the upper bin adds to the balance."""
        return -self.threshold, 1 - self.threshold


def factor_name(stage: int) -> str:
    """The name of the factor that a stage reads, which is a variable beside the module's."""
    return f"{FACTOR}___{stage}"


def factors_in(named: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some values by name that belong to factors."""
    return {name: value for name, value in named.items() if name.startswith(f"{FACTOR}___")}


@dc.dataclass(frozen=True)
class Factors:
    """The factors of a model: one for each stage of a pipeline, as stages share no variable.

    Attributes:
      settings: what is counted.
      stages: how many there are; 1 without a pipeline.
    """

    settings: LossScaling
    stages: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that hold them."""
        return tuple(map(factor_name, range(self.stages)))

    def of(self, stage: int | None, variables: Mapping[str, jax.Array]) -> jax.Array | None:
        """That of a stage; of what is in none, only a model without stages has one."""
        if self.stages == 1:
            return variables[self.names[0]]
        return None if stage is None else variables[factor_name(stage)]

    def final(self, scale: Any, variables: Mapping[str, jax.Array]) -> jax.Array:
        """By what the loss, which is in the last stage, is multiplied.

        Args:
          scale: besides the factor.
          variables: with the factors.
        """
        return scale * jax.lax.stop_gradient(variables[self.names[-1]])

    def watched(self, loss: jax.Array, variables: Mapping[str, jax.Array]) -> jax.Array:
        """The loss, whose gradient is counted if it is in float16."""
        if loss.dtype != jnp.float16:
            return loss
        return counted(loss, variables[self.names[-1]], self.settings)


def _others(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name not in factors_in(named)}


def scaled(
    optimizer: optax.GradientTransformation, settings: LossScaling
) -> optax.GradientTransformation:
    """An optimizer for gradients of a loss that is multiplied by factors, too.

    The factors are variables of `factors_in`, whose gradients are balances as `counted` gives them.

    Args:
      optimizer: of the other variables, which are a dict; its state is one, too, to which `scale`
        is added, a `Scale`.
      settings: what is counted.
    """

    def init(params: Any) -> Any:
        begun: Any = optimizer.init(_others(params))
        return {**begun, "scale": Scale.begin()}

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        rest = dict(state)
        scale: Scale = rest.pop("scale")
        gradients = {
            name: gradient.astype(jnp.promote_types(gradient.dtype, "float32")) / scale.factor
            for name, gradient in _others(updates).items()
        }
        given: Any = optimizer.update(gradients, rest, _others(params))
        changes, after = given
        balance = sum(value.astype("float32") for value in factors_in(updates).values())
        new = scale.after(jnp.asarray(balance), settings)
        moved = {name: new.factor - old for name, old in factors_in(params).items()}
        return {**changes, **moved}, {**after, "scale": new}

    return optax.GradientTransformation(init, update)


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
