"""The optimizers AdaGrad, RMSProp and AdaDelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ipujax.doors.graphs import ADADELTA, ADAGRAD, RMSPROP, Formula
from ipujax.ground import Keywords
from ipujax.popart.optimizers.hyperparameter_values import (
    NamedValues,
    OptimizerValue,
    OptimizerValueMap,
)
from ipujax.popart.optimizers.optimizer import Hyper, Optimizer, check_slot_type
from ipujax.popart.optimizers.optimizer_kinds import AdaptiveMode, WeightDecayMode
from ipujax.popart.optimizers.scalars import ADAPTIVE, Scalar
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import DataType

_RMS = (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp)


@check.guard
class Adaptive(Optimizer):
    """The optimizers that divide by an average of past squared gradients.

    `v1 = a * v1 + (1 - a) * g**2` (AdaGrad: `v1 + g**2`); the change is
    `x = g / (sqrt(v1) + eps)`, for CenteredRMSProp with `v1 - v2**2` in the root, where
    `v2 = a * v2 + (1 - a) * g`; AdaDelta's is `g * sqrt(v2 + eps) / sqrt(v1 + eps)`, with
    `v2 = a * v2 + (1 - a) * x**2` after it. With momentum `v3 = m * v3 + x` takes its place.
    `w -= lr * x`. TensorFlow's variant of both RMSProps begins with ones in `v1`, and has `eps`
    in the root and the learning rate in `v3`.

    Args:
      values: any of defaultLearningRate (0.01), defaultWeightDecay (0), defaultAlpha (0.99),
        defaultMomentum (0), defaultEps (1e-6), lossScaling (1), each with whether it is constant.
      mode: the variant.
      weight_decay_mode: where weight decay acts.
      accum_type: the data type of accumulated gradients; UNDEFINED for the weight's.
      accl1_type: the data type of `v1`.
      accl2_type: the data type of `v2`.
      accl3_type: the data type of `v3`; UNDEFINED for the weight's.
      rmsprop_tf_variant: whether RMSProp is TensorFlow's.
      debugContext: a name; it changes nothing.

    Raises:
      PopARTError: (a `ValueError`) values that cannot be, or that Adaptive does not have.
    """

    defaults: ClassVar[dict[str, float]] = {
        "learningRate": 0.01,
        "weightDecay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
        "lossScaling": 1.0,
    }
    positive = ("eps",)

    def __init__(
        self,
        values: NamedValues,
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
        debugContext: object = "adaptive",
    ):
        del debugContext
        super().__init__(values)
        self._mode = check.require_instance(mode, AdaptiveMode, "mode")
        self._decay = check.require_instance(
            weight_decay_mode, WeightDecayMode, "weight_decay_mode"
        )
        self.accumulator_type = check_slot_type(accum_type, "accum_type")
        types = {"accl1_type": accl1_type, "accl2_type": accl2_type, "accl3_type": accl3_type}
        self._slot_types = tuple(check_slot_type(kind, name) for name, kind in types.items())
        self._is_tf = check.require_flag(rmsprop_tf_variant, "rmsprop_tf_variant")
        if self._is_tf and self._mode not in _RMS:
            raise check.value_error(
                f"rmsprop_tf_variant is set for {self._mode.name}", "it is for RMSProp modes only"
            )

    def alphas(self) -> OptimizerValueMap:
        """Returns the decay rates of all weights' averages."""
        return self.values["alpha"]

    def momentums(self) -> OptimizerValueMap:
        """Returns the momentums of all weights."""
        return self.values["momentum"]

    def epss(self) -> OptimizerValueMap:
        """Returns the epsilons of all weights."""
        return self.values["eps"]

    def _select_scalars(self, values: Mapping[str, OptimizerValue]) -> tuple[Scalar, ...]:
        del values
        return ADAPTIVE

    def _list_constant_settings(self) -> object:
        kinds = self._mode, self._decay, self.accumulator_type, self._slot_types, self._is_tf
        return self._clipping, *kinds

    @property
    def _formula(self) -> Formula:
        if self._mode in _RMS:
            return RMSPROP
        return ADAGRAD if self._mode is AdaptiveMode.AdaGrad else ADADELTA

    def _formula_settings(self, hyper: Hyper) -> Keywords:
        return {
            "rho": hyper("alpha"),  # as Adadelta calls it
            "centered": self._mode is AdaptiveMode.CenteredRMSProp,
            "use_tf_variant": self._is_tf,
            "decoupled_weight_decay": self._decay is WeightDecayMode.Decay,
        }
