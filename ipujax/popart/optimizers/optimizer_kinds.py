"""The enumerations of optimizers, with the original's names and numbers."""

from ipujax.popart.numbered_enum import NumberedEnum


class WeightDecayMode(NumberedEnum):
    """The choice of where weight decay acts: on the weight, or as a term of the gradient."""

    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(NumberedEnum):
    """The choice of whether gradients are accumulated in the velocity itself.

    Attributes:
      Combined: the decay of the velocity and of the weight for a step is added at the end of the
        step before, with the values of that time.
      Separate: it is computed in the step itself.
    """

    Combined = 0
    Separate = 1


class AdamMode(NumberedEnum):
    """The choice among the variants of `Adam`."""

    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class AdaptiveMode(NumberedEnum):
    """The choice among the variants of `Adaptive`."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3
