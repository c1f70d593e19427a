"""Dropout as a layer."""

from __future__ import annotations

from typing import Any

from ipujax.ground import Json, PyTree
from ipujax.keras.keras_checks import check
from ipujax.keras.layers.shared import Layer, make_seed_generator, serializable, to_config_value
from ipujax.operators import check_dropout_rate
from ipujax.operators import random as rand_ops


@check.guard
@serializable
class Dropout(Layer):
    """Sets inputs to zero at random in training, and scales the others to keep the expected sum.

    Seed 001, 18.13; on `rand_ops.dropout`.

    Args:
      rate: the probability that an element is zeroed, in [0, 1).
      noise_shape: the shape of the mask, which is repeated along axes of extent 1; None, and None
        in it, stand for the extents of the inputs.
      seed: an integer or a pair of integers of 32 bits. Layers with equal seeds draw equal masks, a
        new mask in each call; None starts at random. The state of the generator is a part of the
        layer's state.
      **kwargs: arguments of `keras.layers.Layer`.

    Raises:
      OperatorError: (a `ValueError`) a rate outside of [0, 1), or a seed of another type; when
        called, a noise shape that does not fit the inputs.
      ConfigTypeError: (a `TypeError`) a rate that is no number.
    """

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = check_dropout_rate(rate)
        self.noise_shape = (
            None if noise_shape is None else [to_config_value(n) for n in noise_shape]
        )
        self.seed = to_config_value(seed)
        seed_name = f"the seed of {self.name}"
        self.seed_generator = make_seed_generator(seed, seed_name) if self.rate else None
        self.supports_masking = True

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the inputs, with dropout in training."""
        if not training or self.seed_generator is None:
            return inputs
        seed = self.seed_generator.next()
        return rand_ops.dropout(inputs, self.rate, self.noise_shape, seed, self.name)

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        arguments = {"rate": self.rate, "noise_shape": self.noise_shape, "seed": self.seed}
        return super().get_config() | arguments
