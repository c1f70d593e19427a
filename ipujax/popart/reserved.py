"""What the names of tensors begin with that belong to another tensor, such as its gradient."""

from collections.abc import Callable

from ipujax.doors.graphs import GRADIENT
from ipujax.popart.anchors import ACCUMULATED, UPDATED


def reservedGradientPrefix() -> str:
    """Of gradients, which can be anchored."""
    return GRADIENT


def reservedAcclPrefix() -> str:
    """Of the velocity of an `SGD` that keeps it Combined."""
    return "Accl___"


def reservedAccl1Prefix() -> str:
    """Of an optimizer's first moment, and of the velocity of an `SGD` that keeps it Separate."""
    return "Accl1___"


def reservedAccl2Prefix() -> str:
    """Of an optimizer's second moment."""
    return "Accl2___"


def reservedAccl3Prefix() -> str:
    """Of what `Adaptive` keeps for momentum."""
    return "Accl3___"


def reservedStepPrefix() -> str:
    """Of the number of steps that `Adam` has made."""
    return "Step___"


def reservedAccumPrefix() -> str:
    """Of the sum of a weight's gradients so far, over the micro-batches of a weight update."""
    return ACCUMULATED


def reservedUpdatedVarPrefix() -> str:
    """Of a weight after the update of its batch."""
    return UPDATED


def reservedLossScalingPrefix() -> str:
    """Of the loss scaling, before the data type of the loss."""
    return "lossScaling_"


def _default(name: str) -> Callable[[], str]:
    def prefix() -> str:
        """Of a number for all weights that have none of their own, before their data type."""
        return f"{name}___default___"

    return prefix


def _specific(name: str) -> Callable[[], str]:
    def prefix() -> str:
        """Of a number for one weight, before the weight's name."""
        return f"{name}___specific___"

    return prefix


# What the numbers are says `optimizers.scalars`.
reservedDefaultScaledLearningRate0Prefix = _default("scaledLearningRate0")
reservedSpecificScaledLearningRate0Prefix = _specific("scaledLearningRate0")
reservedDefaultWeightDecayScaleFactor0Prefix = _default("weightDecayScaleFactor0")
reservedSpecificWeightDecayScaleFactor0Prefix = _specific("weightDecayScaleFactor0")
reservedDefaultScaledLearningRate1Prefix = _default("scaledLearningRate1")
reservedSpecificScaledLearningRate1Prefix = _specific("scaledLearningRate1")
reservedDefaultScaledWeightDecay1Prefix = _default("scaledWeightDecay1")
reservedSpecificScaledWeightDecay1Prefix = _specific("scaledWeightDecay1")
reservedDefaultDampeningScaleFactor1Prefix = _default("dampeningScaleFactor1")
reservedSpecificDampeningScaleFactor1Prefix = _specific("dampeningScaleFactor1")
reservedDefaultScaledMomentum1Prefix = _default("scaledMomentum1")
reservedSpecificScaledMomentum1Prefix = _specific("scaledMomentum1")
reservedDefaultLearningRatePrefix = _default("learningRate")
reservedSpecificLearningRatePrefix = _specific("learningRate")
reservedDefaultWeightDecayPrefix = _default("weightDecay")
reservedSpecificWeightDecayPrefix = _specific("weightDecay")
reservedDefaultLossScalingPrefix = _default("lossScaling")
reservedSpecificLossScalingPrefix = _specific("lossScaling")
reservedDefaultMaxWeightNormPrefix = _default("maxWeightNorm")
reservedSpecificMaxWeightNormPrefix = _specific("maxWeightNorm")
reservedDefaultAdamBeta1Prefix = _default("adamBeta1")
reservedSpecificAdamBeta1Prefix = _specific("adamBeta1")
reservedDefaultAdamBeta2Prefix = _default("adamBeta2")
reservedSpecificAdamBeta2Prefix = _specific("adamBeta2")
reservedDefaultAdamEpsPrefix = _default("adamEps")
reservedSpecificAdamEpsPrefix = _specific("adamEps")
