"""Adam, AdaMax and Lamb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from ipujax.popart.checks import check
from ipujax.popart.optimizers.clipping import ClipNormSettings
from ipujax.popart.optimizers.kinds import AdamMode, WeightDecayMode
from ipujax.popart.optimizers.optimizer import Array, Hyper, Optimizer, Slots, slot_type, zeros
from ipujax.popart.optimizers.scalars import ADAM, Scalar
from ipujax.popart.optimizers.values import Given, OptimizerValue, OptimizerValueMap
from ipujax.popart.tensor_info import DataType

_FIRST, _SECOND, _STEP = "Accl1___", "Accl2___", "Step___"
_PREVIOUS = "PreviousLossScaling___specific___"
_LAMB = (AdamMode.Lamb, AdamMode.LambNoBias)
_BIASED = (AdamMode.AdamNoBias, AdamMode.LambNoBias)


@check.guard
class Adam(Optimizer):
    """Adam and its kin, with moments `m` and `v` in slots of their own.

    `m = b1 * m + (1 - b1) * g`, `v = b2 * v + (1 - b2) * g**2` (AdaMax: `max(b2 * v, abs(g))`);
    corrected by `1 - b**t` except in the NoBias modes (AdaMax corrects `m` alone), the change is
    `x = m / (sqrt(v) + eps)` (AdaMax: `m / (v + eps)`), to which `Decay` adds `wd * w`;
    L2Regularization adds it to the gradient. `w -= lr * x`, in the Lamb modes times
    `min(norm(w), maxWeightNorm) / norm(x)`, or 1 where a norm is 0.

    Args:
      values: any of defaultLearningRate (0.1), defaultWeightDecay (0), defaultBeta1 (0.9),
        defaultBeta2 (0.999), defaultEps (1e-6), defaultMaxWeightNorm (10), lossScaling (1), each
        with whether it is constant.
      mode: the kind.
      weight_decay_mode: where weight decay acts.
      accum_type: of the sum over micro-batches; UNDEFINED for the weight's.
      accl1_type: of the first moment.
      accl2_type: of the second.
      clip_norm_settings: `ClipNormSettings`, applied in order.
      scaled_optimizer_state: whether the moments keep the loss scaling; they follow it when it
        changes.
      debugContext: a name; it changes nothing.

    Raises:
      PopARTError: (a `ValueError`) values that cannot be, or that Adam does not have.
    """

    defaults: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "lossScaling": 1.0,
        "maxWeightNorm": 10.0,
    }
    positive = ("eps",)
    older: ClassVar[dict[str, str]] = {"maxWeightNorm": "defaultMaxWeightNorm"}

    def __init__(
        self,
        values: Given,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: Any = "adam",
    ):
        del debugContext
        super().__init__(values, clip_norm_settings)
        self._mode = check.instance(mode, AdamMode, "mode")
        self._decay = check.instance(weight_decay_mode, WeightDecayMode, "weight_decay_mode")
        self.accumulator_type = slot_type(accum_type, "accum_type")
        self._types = slot_type(accl1_type, "accl1_type"), slot_type(accl2_type, "accl2_type")
        self.keeps_scaled = check.flag(scaled_optimizer_state, "scaled_optimizer_state")

    def learningRates(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["weightDecay"]

    def beta1s(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["beta1"]

    def beta2s(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["beta2"]

    def epss(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["eps"]

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Of all weights."""
        return self.values["maxWeightNorm"]

    def _scalars(self, values: Mapping[str, OptimizerValue]) -> tuple[Scalar, ...]:
        del values
        return ADAM

    def _settings(self) -> Any:
        kinds = self._mode, self._decay, self.accumulator_type, self._types, self.keeps_scaled
        return self._clipping, *kinds

    def slots(self, hyper: Hyper, weight: Array) -> Slots:
        """Both moments, and the number of steps where it is needed."""
        first, second = self._types
        slots = {_FIRST: zeros(weight, first), _SECOND: zeros(weight, second)}
        if self._mode not in _BIASED:
            slots[_STEP] = jnp.float32(0)
        if self.keeps_scaled and not self.values["lossScaling"].getDefault().constant:
            slots[_PREVIOUS] = jnp.asarray(hyper("lossScaling"), jnp.float32)
        return slots

    def step(self, hyper: Hyper, gradient: Array, weight: Array, slots: Slots) -> tuple[Any, Slots]:
        """As the class says."""
        is_max = self._mode is AdamMode.AdaMax
        scale = hyper("lossScaling") if self.keeps_scaled else 1.0
        decay = hyper("weightDecay") * weight if hyper.acts("weightDecay") else 0.0
        if self._decay is WeightDecayMode.L2Regularization:
            gradient, decay = gradient + decay, 0.0
        gradient = gradient * scale
        grown = scale / slots[_PREVIOUS] if _PREVIOUS in slots else 1.0
        old1, old2 = slots[_FIRST] * grown, slots[_SECOND] * (grown if is_max else grown**2)
        beta1, beta2 = hyper("beta1"), hyper("beta2")
        first = beta1 * old1 + (1 - beta1) * gradient
        if is_max:
            second = jnp.maximum(beta2 * old2, jnp.abs(gradient))
        else:
            second = beta2 * old2 + (1 - beta2) * jnp.square(gradient)
        new = {_FIRST: first, _SECOND: second}
        if _PREVIOUS in slots:
            new[_PREVIOUS] = jnp.asarray(scale, jnp.float32)
        if self._mode not in _BIASED:
            new[_STEP] = step = slots[_STEP] + 1
            first = first / (1 - jnp.asarray(beta1, jnp.float32) ** step)
            second = second if is_max else second / (1 - jnp.asarray(beta2, jnp.float32) ** step)
        root = second if is_max else jnp.sqrt(second)
        change = first / (root + hyper("eps") * scale) + decay
        ratio = self._trust(hyper, weight, change) if self._mode in _LAMB else 1.0
        return -hyper("learningRate") * ratio * change, new

    def _trust(self, hyper: Hyper, weight: Array, change: Array) -> Array:
        of_weight, of_change = (jnp.sqrt(jnp.sum(jnp.square(x))) for x in (weight, change))
        limited = jnp.minimum(of_weight, hyper("maxWeightNorm"))
        is_known = (limited != 0) & (of_change != 0)
        return jnp.where(is_known, limited / jnp.where(is_known, of_change, 1), 1)
