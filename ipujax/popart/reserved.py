"""The prefixes of tensor names that belong to another tensor, such as its gradient."""

from collections.abc import Callable

from ipujax.doors.graphs import GRADIENT
from ipujax.popart.anchored_tensors import ACCUMULATED, UPDATED


def reservedGradientPrefix() -> str:
    """Returns the prefix of gradients, which can be anchored."""
    return GRADIENT


def reservedAcclPrefix() -> str:
    """Returns the prefix of the velocity of an `SGD` with a Combined accumulator."""
    return "Accl___"


def reservedAccl1Prefix() -> str:
    """Returns the prefix of first moments, and of the velocity of an `SGD` with a Separate one."""
    return "Accl1___"


def reservedAccl2Prefix() -> str:
    """Returns the prefix of second moments of an optimizer."""
    return "Accl2___"


def reservedAccl3Prefix() -> str:
    """Returns the prefix of the momentum buffer of `Adaptive`."""
    return "Accl3___"


def reservedStepPrefix() -> str:
    """Returns the prefix of the step count of `Adam`."""
    return "Step___"


def reservedAccumPrefix() -> str:
    """Returns the prefix of gradients accumulated over the micro-batches of a weight update."""
    return ACCUMULATED


def reservedUpdatedVarPrefix() -> str:
    """Returns the prefix of weights after the update of their batch."""
    return UPDATED


def reservedLossScalingPrefix() -> str:
    """Returns the prefix of the loss scaling, before the data type of the loss."""
    return "lossScaling_"


def _make_default_prefix(name: str) -> Callable[[], str]:
    def prefix() -> str:
        """Returns the prefix of a hyperparameter's default value, before its data type."""
        return f"{name}___default___"

    return prefix


def _make_specific_prefix(name: str) -> Callable[[], str]:
    def prefix() -> str:
        """Returns the prefix of a hyperparameter of one weight, before the weight's name."""
        return f"{name}___specific___"

    return prefix


# These hyperparameters are defined in `optimizers.scalars`.
reservedDefaultScaledLearningRate0Prefix = _make_default_prefix("scaledLearningRate0")
reservedSpecificScaledLearningRate0Prefix = _make_specific_prefix("scaledLearningRate0")
reservedDefaultWeightDecayScaleFactor0Prefix = _make_default_prefix("weightDecayScaleFactor0")
reservedSpecificWeightDecayScaleFactor0Prefix = _make_specific_prefix("weightDecayScaleFactor0")
reservedDefaultScaledLearningRate1Prefix = _make_default_prefix("scaledLearningRate1")
reservedSpecificScaledLearningRate1Prefix = _make_specific_prefix("scaledLearningRate1")
reservedDefaultScaledWeightDecay1Prefix = _make_default_prefix("scaledWeightDecay1")
reservedSpecificScaledWeightDecay1Prefix = _make_specific_prefix("scaledWeightDecay1")
reservedDefaultDampeningScaleFactor1Prefix = _make_default_prefix("dampeningScaleFactor1")
reservedSpecificDampeningScaleFactor1Prefix = _make_specific_prefix("dampeningScaleFactor1")
reservedDefaultScaledMomentum1Prefix = _make_default_prefix("scaledMomentum1")
reservedSpecificScaledMomentum1Prefix = _make_specific_prefix("scaledMomentum1")
reservedDefaultLearningRatePrefix = _make_default_prefix("learningRate")
reservedSpecificLearningRatePrefix = _make_specific_prefix("learningRate")
reservedDefaultWeightDecayPrefix = _make_default_prefix("weightDecay")
reservedSpecificWeightDecayPrefix = _make_specific_prefix("weightDecay")
reservedDefaultLossScalingPrefix = _make_default_prefix("lossScaling")
reservedSpecificLossScalingPrefix = _make_specific_prefix("lossScaling")
reservedDefaultMaxWeightNormPrefix = _make_default_prefix("maxWeightNorm")
reservedSpecificMaxWeightNormPrefix = _make_specific_prefix("maxWeightNorm")
reservedDefaultAdamBeta1Prefix = _make_default_prefix("adamBeta1")
reservedSpecificAdamBeta1Prefix = _make_specific_prefix("adamBeta1")
reservedDefaultAdamBeta2Prefix = _make_default_prefix("adamBeta2")
reservedSpecificAdamBeta2Prefix = _make_specific_prefix("adamBeta2")
reservedDefaultAdamEpsPrefix = _make_default_prefix("adamEps")
reservedSpecificAdamEpsPrefix = _make_specific_prefix("adamEps")
