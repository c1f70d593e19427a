"""Automatic loss scaling: a factor of the loss that follows the size of float16 gradients.

The rule is that of PopART (`automaticlossscaling.hpp` and `lossscaleupdatex.cpp` of its sources):
gradients are counted in two bins, below and above a fraction of the greatest float16. If the upper
bin has more than a fraction of them, the factor is halved, else doubled.

The counts come from differentiation: `pass_and_count_gradient` is the identity, whose derivative by
the factor is a balance of the two bins. Balances of all gradients, micro-batches and replicas add
up, or are averaged, as the derivatives of a variable are, and only their sign matters.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from ipujax.ground import Checks, PyTree

Value = TypeVar("Value")

FACTOR = "lossScaleUpdateFactor"
"""The name of the factor. As pipeline stages can share no variable, each stage has its own."""


@dc.dataclass(frozen=True)
class LossScaling:
    """The settings of automatic loss scaling, with types and ranges as in PopART's options.

    Attributes:
      bin_edge: the beginning of the upper bin, as a fraction of the greatest float16.
      threshold: the fraction of gradients in the upper bin up to which the factor is doubled.
      period: the number of weight updates for each update of the factor.
      of_products: whether only gradients of the operands of products and convolutions count, else
        those of all operators but views.
    """

    bin_edge: float = 0.125
    threshold: float = 1e-7
    period: int = 1
    of_products: bool = False

    def check_ranges(self, check: Checks) -> None:
        """Refuses numbers that are out of range, with the errors of a front end."""
        for prefix, name, value in (
            ("[AutomaticLossScale transform] ", "binEdgeLocation", self.bin_edge),
            ("", "thresholdUpperCountProportion", self.threshold),
        ):
            if not 0 <= value <= 1:
                raise check.value_error(
                    f"{prefix}Out of range value for '{name}'. The current value is {value}, but "
                    "it should be in the range [0, 1]."
                )
        check.require_integer(self.period, "automaticLossScalingSettings.updatePeriod", at_least=1)

    @property
    def balance_of_bins(self) -> tuple[float, float]:
        """The contributions to the balance of a gradient in the lower and in the upper bin."""
        return -self.threshold, 1 - self.threshold


def loss_scale_factor_name(stage: int) -> str:
    """Returns the name of the factor of a stage, a variable beside those of the model."""
    return f"{FACTOR}___{stage}"


def select_loss_scale_factors(named: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the loss scaling factors of a mapping of variables by name."""
    return {name: value for name, value in named.items() if name.startswith(f"{FACTOR}___")}


@dc.dataclass(frozen=True)
class Factors:
    """The factors of a model: one for each stage of a pipeline, as stages share no variable.

    Attributes:
      settings: the settings of loss scaling.
      stages: the number of stages; 1 without a pipeline.
    """

    settings: LossScaling
    stages: int = 1

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The names of the variables that hold the factors."""
        return tuple(map(loss_scale_factor_name, range(self.stages)))

    def factor_of_stage(
        self, stage: int | None, variables: Mapping[str, jax.Array]
    ) -> jax.Array | None:
        """Returns the factor of a stage; for no stage, that of a model without stages or None."""
        if self.stages == 1:
            return variables[self.factor_names[0]]
        return None if stage is None else variables[loss_scale_factor_name(stage)]

    def multiplier_of_loss(
        self, scale: float | jax.Array, variables: Mapping[str, jax.Array]
    ) -> jax.Array:
        """Returns the number by which the loss, in the last stage, is multiplied.

        Args:
          scale: the loss scale without the factor.
          variables: the variables, with the factors.
        """
        return scale * jax.lax.stop_gradient(variables[self.factor_names[-1]])

    def count_loss_gradient(self, loss: jax.Array, variables: Mapping[str, jax.Array]) -> jax.Array:
        """Returns the loss, with its gradient counted if it is in float16."""
        if loss.dtype != jnp.float16:
            return loss
        return pass_and_count_gradient(loss, variables[self.factor_names[-1]], self.settings)


def _drop_factors(named: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: value for name, value in named.items() if name not in select_loss_scale_factors(named)
    }


def wrap_with_loss_scaling(
    optimizer: optax.GradientTransformation, settings: LossScaling
) -> optax.GradientTransformation:
    """Returns an optimizer for gradients of a loss that is multiplied by factors.

    The factors are variables of `select_loss_scale_factors`; their gradients are balances of
    `pass_and_count_gradient`.

    Args:
      optimizer: the optimizer of the other variables, which are a dict; its state is a dict too,
        to which a `Scale` is added as `scale`.
      settings: the settings of loss scaling.
    """

    def init_with_scale(params: PyTree) -> PyTree:
        optimizer_state: PyTree = optimizer.init(_drop_factors(params))
        return {**optimizer_state, "scale": Scale.make_initial_scale()}

    def update_with_scale(
        updates: PyTree, state: PyTree, params: PyTree = None
    ) -> tuple[PyTree, PyTree]:
        optimizer_state = dict(state)
        scale: Scale = optimizer_state.pop("scale")
        gradients = {
            name: gradient.astype(jnp.promote_types(gradient.dtype, "float32")) / scale.factor
            for name, gradient in _drop_factors(updates).items()
        }
        result: PyTree = optimizer.update(gradients, optimizer_state, _drop_factors(params))
        changes, new_state = result
        balance = sum(
            value.astype("float32") for value in select_loss_scale_factors(updates).values()
        )
        new_scale = scale.scale_after_update(jnp.asarray(balance), settings)
        factor_changes = {
            name: new_scale.factor - old for name, old in select_loss_scale_factors(params).items()
        }
        return {**changes, **factor_changes}, {**new_state, "scale": new_scale}

    return optax.GradientTransformation(init_with_scale, update_with_scale)


class Scale(NamedTuple):
    """The state that a program keeps of automatic loss scaling.

    Attributes:
      factor: the factor of the loss besides the optimizer's `loss_scaling`, a float32.
      updates: weight updates so far, an int32.
    """

    factor: jax.Array
    updates: jax.Array

    @classmethod
    def make_initial_scale(cls, factor: ArrayLike = 1.0) -> Scale:
        """Returns the state before the first weight update."""
        return cls(jnp.asarray(factor, jnp.float32).reshape(()), jnp.int32(0))

    def scale_after_update(self, balance: jax.Array, settings: LossScaling) -> Scale:
        """Returns the state after a weight update whose gradients were counted."""
        is_due = self.updates % settings.period == 0
        new_factor = self.factor * jnp.where(balance > 0, 0.5, 2.0)
        return Scale(jnp.where(is_due, new_factor, self.factor), self.updates + 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def pass_and_count_gradient(x: jax.Array, factor: jax.Array, settings: LossScaling) -> jax.Array:
    """Returns a value in float16 unchanged, and counts its gradient.

    The gradient is cut off at the greatest float16, as it is on an IPU: an infinite one would make
    the weights infinite before the factor can change.

    Args:
      x: the value.
      factor: a float32 scalar, whose gradient is the balance of the bins.
      settings: the settings of loss scaling.
    """
    del factor, settings
    return x


def _count_forward(
    x: jax.Array, factor: jax.Array, settings: LossScaling
) -> tuple[jax.Array, None]:
    del factor, settings
    return x, None


def _count_backward(
    settings: LossScaling, _: None, gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    greatest = float(jnp.finfo(gradient.dtype).max)
    is_low = jnp.abs(gradient).astype(jnp.float32) < greatest * settings.bin_edge
    low, high = settings.balance_of_bins
    balance = jnp.sum(jnp.where(is_low, jnp.float32(low), jnp.float32(high)))
    return jnp.clip(gradient, -greatest, greatest), balance


pass_and_count_gradient.defvjp(_count_forward, _count_backward)
