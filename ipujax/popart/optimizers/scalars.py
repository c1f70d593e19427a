"""The scalars that the original's programs read for hyperparameters; they can be anchored.

Only variable hyperparameters have scalars: `learningRate___default___FLOAT` belongs to all weights
in FLOAT, `learningRate___specific___w` to a weight with values of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

DIVISOR = "divisor"
"""The divisor of a sum of gradients: the loss scaling, times their number for a mean."""


class Scalar(NamedTuple):
    """A number that the original's programs compute from hyperparameters.

    Attributes:
      name: the prefix of its name.
      reads: the hyperparameters it depends on, or `DIVISOR`; it is constant if they all are.
      value: the function of them.
    """

    name: str
    reads: tuple[str, ...]
    value: Callable[..., float] = lambda *values: math.prod(values)


SGD_PLAIN = (
    Scalar(
        "scaledLearningRate0",
        ("learningRate", "dampening", DIVISOR),
        lambda rate, damp, divisor: rate * (1 - damp) / divisor,
    ),
    Scalar(
        "weightDecayScaleFactor0",
        ("learningRate", "dampening", "weightDecay"),
        lambda rate, damp, decay: 1 - rate * (1 - damp) * decay,
    ),
)


def sgd_momentum_scalars(number: int) -> tuple[Scalar, ...]:
    """Returns the scalars of SGD with momentum: 1 for a Combined velocity, 2 for a Separate one."""
    return (
        Scalar(
            f"scaledLearningRate{number}",
            ("learningRate", "velocityScaling"),
            lambda rate, scale: rate / scale,
        ),
        Scalar(f"scaledMomentum{number}", ("momentum",)),
        Scalar(
            f"dampeningScaleFactor{number}",
            ("dampening", "velocityScaling", DIVISOR),
            lambda damp, scale, divisor: (1 - damp) * scale / divisor,
        ),
        Scalar(
            "scaledWeightDecay1",
            ("dampening", "weightDecay", "velocityScaling"),
            lambda damp, decay, scale: (1 - damp) * decay * scale,
        ),
    )


SHARED = (
    Scalar("learningRate", ("learningRate",)),
    Scalar("weightDecay", ("weightDecay",)),
    Scalar("lossScaling", ("lossScaling",)),
)
ADAM = (
    *SHARED,
    Scalar("adamBeta1", ("beta1",)),
    Scalar("adamBeta2", ("beta2",)),
    Scalar("adamEps", ("eps",)),
    Scalar("maxWeightNorm", ("maxWeightNorm",)),
    Scalar("adamGradientScaling", (DIVISOR,), lambda divisor: 1 / divisor),
)
ADAPTIVE = (
    *SHARED,
    Scalar("adaptiveAlpha", ("alpha",)),
    Scalar("adaptiveMomentum", ("momentum",)),
    Scalar("adaptiveEps", ("eps",)),
    Scalar("adaptiveGradientScaling", (DIVISOR,), lambda divisor: 1 / divisor),
)
