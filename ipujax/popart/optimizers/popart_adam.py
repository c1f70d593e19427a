"""The optimizers Adam, AdaMax and Lamb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import ADAM, ADAMAX, LAMB, Formula, Slot
from ipujax.ground import Keywords
from ipujax.popart.optimizers import scalars
from ipujax.popart.optimizers.clipping import ClipNormSettings
from ipujax.popart.optimizers.hyperparameter_values import (
    NamedValues,
    OptimizerValue,
    OptimizerValueMap,
)
from ipujax.popart.optimizers.optimizer import (
    PREVIOUS_SCALING,
    Array,
    Hyper,
    Optimizer,
    Slots,
    check_slot_type,
)
from ipujax.popart.optimizers.optimizer_kinds import AdamMode, WeightDecayMode
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import DataType

_LAMB = (AdamMode.Lamb, AdamMode.LambNoBias)
_BIASED = (AdamMode.AdamNoBias, AdamMode.LambNoBias)


@check.guard
class Adam(Optimizer):
    """The optimizer Adam and its kin, with moments `m` and `v` in slots of their own.

    `m = b1 * m + (1 - b1) * g`, `v = b2 * v + (1 - b2) * g**2` (AdaMax: `max(b2 * v, abs(g))`);
    corrected by `1 - b**t` except in the NoBias modes (AdaMax corrects `m` alone), the change is
    `x = m / (sqrt(v) + eps)` (AdaMax: `m / (v + eps)`), to which `Decay` adds `wd * w`;
    L2Regularization adds it to the gradient. `w -= lr * x`, in the Lamb modes times
    `min(norm(w), maxWeightNorm) / norm(x)`, or 1 where a norm is 0.

    Args:
      values: any of defaultLearningRate (0.1), defaultWeightDecay (0), defaultBeta1 (0.9),
        defaultBeta2 (0.999), defaultEps (1e-6), defaultMaxWeightNorm (10), lossScaling (1), each
        with whether it is constant.
      mode: the variant.
      weight_decay_mode: where weight decay acts.
      accum_type: the data type of accumulated gradients; UNDEFINED for the weight's.
      accl1_type: the data type of the first moment.
      accl2_type: the data type of the second moment.
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
        values: NamedValues,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: object = "adam",
    ):
        del debugContext
        super().__init__(values, clip_norm_settings)
        self._mode = check.require_instance(mode, AdamMode, "mode")
        self._decay = check.require_instance(
            weight_decay_mode, WeightDecayMode, "weight_decay_mode"
        )
        self.accumulator_type = check_slot_type(accum_type, "accum_type")
        self._slot_types = (
            check_slot_type(accl1_type, "accl1_type"),
            check_slot_type(accl2_type, "accl2_type"),
        )
        self.keeps_scaled = check.require_flag(scaled_optimizer_state, "scaled_optimizer_state")

    def beta1s(self) -> OptimizerValueMap:
        """Returns the decay rates of all weights' first moments."""
        return self.values["beta1"]

    def beta2s(self) -> OptimizerValueMap:
        """Returns the decay rates of all weights' second moments."""
        return self.values["beta2"]

    def epss(self) -> OptimizerValueMap:
        """Returns the epsilons of all weights."""
        return self.values["eps"]

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Returns the greatest weight norms of all weights."""
        return self.values["maxWeightNorm"]

    def _select_scalars(self, values: Mapping[str, OptimizerValue]) -> tuple[scalars.Scalar, ...]:
        del values
        return scalars.ADAM

    def _list_constant_settings(self) -> object:
        kinds = self._mode, self._decay, self.accumulator_type, self._slot_types, self.keeps_scaled
        return self._clipping, *kinds

    @property
    def _formula(self) -> Formula:
        return LAMB if self._mode in _LAMB else ADAMAX if self._mode is AdamMode.AdaMax else ADAM

    def _formula_settings(self, hyper: Hyper) -> Keywords:
        is_corrected = self._mode not in _BIASED
        return {
            "betas": (hyper("beta1"), hyper("beta2")),
            "eps_apart": True,
            "decoupled_weight_decay": self._decay is WeightDecayMode.Decay,
            "bias_correction": is_corrected,
            "counts_steps": is_corrected,
        }

    def _slot_scale(self, hyper: Hyper) -> float | jax.Array:
        return hyper("lossScaling") if self.keeps_scaled else 1.0

    def _scale_power_of_slot(self, slot: Slot) -> int:
        return min(slot.order, 1) if self._mode is AdamMode.AdaMax else slot.order

    def _make_initial_slots(self, hyper: Hyper, weight: Array) -> Slots:
        slots = super()._make_initial_slots(hyper, weight)
        if self.keeps_scaled and not self.values["lossScaling"].getDefault().constant:
            slots[PREVIOUS_SCALING] = jnp.asarray(hyper("lossScaling"), jnp.float32)
        return slots
