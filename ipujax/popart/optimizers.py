"""Optimizers of PopART."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ipujax.popart.checks import check

Values = Mapping[str, tuple[float, bool]]
"""Values of an optimizer by name, and whether each is constant."""


class SGD:
    """Stochastic gradient descent.

    Args:
      values: of `defaultLearningRate`, `lossScaling` and so on, each with whether it is constant.
    """

    def __init__(self, values: Values):
        self.values = {name: float(value) for name, (value, _) in values.items()}
        for name in self.values:
            check.one_of(name, ("defaultLearningRate", "lossScaling"), "a value of SGD")

    def hyper(self) -> dict[str, jax.Array]:
        """The hyperparameters, as data of the program."""
        return {
            "rate": jnp.float32(self.values.get("defaultLearningRate", 0.1)),
            "scale": jnp.float32(self.values.get("lossScaling", 1.0)),
        }

    def transformation(self) -> optax.GradientTransformation:
        """As optax has it; its state has the hyperparameters."""

        def init(params: Any) -> Any:
            del params
            return self.hyper()

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            del params
            factor = -state["rate"] / state["scale"]
            return jax.tree.map(lambda g: (factor * g).astype(g.dtype), updates), state

        return optax.GradientTransformation(init, update)


def ConstSGD(learningRate: float, weightDecay: float = 0, lossScaling: float = 1) -> SGD:
    """`SGD` with values that never change."""
    del weightDecay
    return SGD({"defaultLearningRate": (learningRate, True), "lossScaling": (lossScaling, True)})
