"""The optimizers `SGD` and `ConstSGD`: stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax

from ipujax.doors.graphs import Formula, Slot, decay_velocity, optimizers
from ipujax.ground import Keywords
from ipujax.popart.optimizers.clipping import ClipNormSettings
from ipujax.popart.optimizers.hyperparameter_values import (
    NamedValues,
    OptimizerValue,
    OptimizerValueMap,
)
from ipujax.popart.optimizers.optimizer import Array, Hyper, Optimizer, Slots, check_slot_type
from ipujax.popart.optimizers.optimizer_kinds import SGDAccumulatorAndMomentum
from ipujax.popart.optimizers.scalars import SGD_PLAIN, Scalar, sgd_momentum_scalars
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import DataType


@check.guard
class SGD(Optimizer):
    """The optimizer SGD, with momentum `mm`, dampening `dm` and weight decay `wd`.

    With the gradient `g` (without loss scaling), the velocity is stored multiplied by
    `velocityScaling`: `v = mm * v + vs * (1 - dm) * (g + wd * w)`, `w -= lr / vs * v`; with
    Nesterov's momentum `w -= lr * (g + wd * w + mm * v / vs)`. Without momentum there is no
    velocity.

    Args:
      pyd: any of defaultLearningRate (0.1), defaultWeightDecay (0), defaultMomentum (0),
        defaultDampening (0), defaultVelocityScaling (1), lossScaling (1) and nesterov (0,
        constant), each with whether it is constant: `{"defaultLearningRate": (0.02, False)}`.
      clip_norm_settings: `ClipNormSettings`, applied in order.
      accumulatorAndMomentum: whether gradients are accumulated in the velocity itself.
      accumType: the data type of accumulated gradients, if Separate or without momentum; UNDEFINED
        for the weight's.
      accl1Type: the data type of the velocity, if Separate; UNDEFINED for the weight's.
      debugContext: a name; it changes nothing.

    Raises:
      PopARTError: (a `ValueError`) values that cannot be, or that SGD does not have.
    """

    defaults: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocityScaling": 1.0,
        "lossScaling": 1.0,
        "nesterov": 0.0,
    }
    positive = ("velocityScaling",)
    plain = ("lossScaling", "nesterov")

    def __init__(
        self,
        pyd: NamedValues | None = None,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        debugContext: object = "sgd",
    ):
        del debugContext
        super().__init__({} if pyd is None else pyd, clip_norm_settings)
        kind = check.require_instance(
            accumulatorAndMomentum, SGDAccumulatorAndMomentum, "accumulatorAndMomentum"
        )
        self._is_combined = kind is SGDAccumulatorAndMomentum.Combined
        accum, accl1 = (
            check_slot_type(accumType, "accumType"),
            check_slot_type(accl1Type, "accl1Type"),
        )
        # A velocity that is combined with the sum has the weight's type.
        has_sum = not (self._is_combined and _has_velocity(self.values["momentum"].getDefault()))
        self.accumulator_type = accum if has_sum else DataType.UNDEFINED
        self._slot_types = (DataType.UNDEFINED if self._is_combined else accl1,)

    def momentums(self) -> OptimizerValueMap:
        """Returns the momentums of all weights."""
        return self.values["momentum"]

    def dampenings(self) -> OptimizerValueMap:
        """Returns the dampenings of all weights."""
        return self.values["dampening"]

    def velocityScalings(self) -> OptimizerValueMap:
        """Returns the velocity scalings of all weights."""
        return self.values["velocityScaling"]

    def nesterov(self) -> OptimizerValueMap:
        """Returns whether weights use Nesterov's momentum."""
        return self.values["nesterov"]

    def _check_values_together(self, values: Mapping[str, OptimizerValue]) -> None:
        if values["nesterov"].value and values["dampening"].value:
            raise check.value_error(
                f"SGD with Nesterov's momentum has dampening ({values['dampening'].value})",
                "leave it at 0",
            )

    def _select_scalars(self, values: Mapping[str, OptimizerValue]) -> tuple[Scalar, ...]:
        if not _has_velocity(values["momentum"]):
            return SGD_PLAIN
        return sgd_momentum_scalars(1 if self._is_combined else 2)

    def _list_constant_settings(self) -> object:
        kinds = self._is_combined, self.accumulator_type, self._slot_types
        return self._clipping, *kinds

    @property
    def _formula(self) -> Formula:
        return optimizers.SGD

    def _formula_settings(self, hyper: Hyper) -> Keywords:
        return {
            "combined": self._is_combined,
        }

    def _slot_scale(self, hyper: Hyper) -> float | jax.Array:
        return hyper("velocityScaling")

    def _slot_prefix(self, slot: Slot) -> str:
        return "Accl___" if self._is_combined else super()._slot_prefix(slot)

    def _make_initial_slots(self, hyper: Hyper, weight: Array) -> Slots:
        slots = super()._make_initial_slots(hyper, weight)
        if not self._is_combined:
            return slots
        numbers, scale = self._plan_weight_update(hyper).numbers, self._slot_scale(hyper)
        return {
            prefix: (scale * decay_velocity(numbers, velocity, weight)).astype(velocity.dtype)
            for prefix, velocity in slots.items()
        }


def _has_velocity(momentum: OptimizerValue) -> bool:
    return momentum != (0, True)


@check.guard
class ConstSGD(SGD):
    """The optimizer `SGD` with constant hyperparameters.

    Args:
      learning_rate: the learning rate; above 0.
      weight_decay: the weight decay.
      loss_scaling: the factor of the loss.
      clip_norm_settings: `ClipNormSettings`.
    """

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ):
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            "lossScaling": (loss_scaling, True),
        }
        super().__init__(values, clip_norm_settings)
