"""What the layers share: their base, values of variables, seeds, and what they do not take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ipujax.checks.arrays import check
from ipujax.errors import IPUError
from ipujax.frontends import keras_backend

keras = keras_backend.keras()

serializable = keras.saving.register_keras_serializable(package="ipujax")
"""Registers a class, so that Keras finds it when it loads a model."""


class Layer(keras.layers.Layer):
    """The base of the layers: what they give, and refuse, is known when a model is put together."""

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the results, from tracing the call."""
        # Keras would believe `compute_output_shape`, and say nothing of what `call` refuses.
        try:
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        except IPUError as error:
            # Keras takes an error for one of the layer's author, and says so around it.
            raise error.__context__ or error from None

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the results: that of the inputs, unless a layer says otherwise."""
        return input_shape


def array(variable: Any, dtype: Any) -> jax.Array:
    """What a variable holds, or what is converted to a tensor, as an array of a dtype."""
    return keras.ops.convert_to_tensor(variable, dtype=dtype)


def initializer(given: Any, default: str, seed: int | None = None) -> Any:
    """An initializer of Keras: one that was given, by name or as it is, or the default for None.

    Args:
      given: what the user asks for.
      default: the name of the one that None stands for.
      seed: what a random initializer that is given by name starts from.
    """
    found = keras.initializers.get(default if given is None else given)
    if seed is None or not (given is None or isinstance(given, str)):
        return found
    config = found.get_config()
    return type(found).from_config(config | {"seed": seed}) if "seed" in config else found


def seed_generator(seed: Any, what: str) -> Any:
    """A generator of seeds, a part of the layer's state, that equal seeds start equally.

    Args:
      seed: an integer, or a pair of integers of 32 bits; None for a random start, which
        `keras.utils.set_random_seed` decides.
      what: names the seed in errors.

    Raises:
      OperatorError: (a `ValueError`) the seed is neither.
    """
    if seed is None:
        return keras.random.SeedGenerator()
    words = np.asarray(seed)
    if not np.issubdtype(words.dtype, np.integer) or words.shape not in ((), (2,)):
        raise check.refuse(f"{what} is {seed!r}", "give an integer, or a pair of them: seed=[1, 2]")
    entropy = [int(word) & 0xFFFFFFFFFFFFFFFF for word in np.atleast_1d(words)]
    return keras.random.SeedGenerator(int(np.random.SeedSequence(entropy).generate_state(1)[0]))


def plain(seed: Any) -> Any:
    """Integers, or None, as a configuration can hold them."""
    return seed if seed is None or isinstance(seed, int) else np.asarray(seed).tolist()


def refuse_unsupported(
    layer: str, given: Mapping[str, Any], defaults: Mapping[str, Any], instead: str
) -> None:
    """Refuses arguments that the original took for Keras's sake, and did not support.

    Args:
      layer: the name of its class.
      given: arguments by name; those that are not among `defaults` pass.
      defaults: the only value of each such argument.
      instead: what to use.

    Raises:
      OperatorError: (a `ValueError`) an argument that is not its default.
    """
    for name, default in defaults.items():
        value = given.get(name, default)
        if value is not default and value != default:
            raise check.refuse(
                f"the {name} of {layer} is {value!r}, but only {default!r} is supported",
                f"leave it out, or use {instead}",
            )


def refuse_mask(layer: str, mask: Any, instead: str) -> None:
    """Refuses the mask that a layer before has put on the inputs, or that was given.

    Raises:
      OperatorError: (a `ValueError`) there is one.
    """
    if mask is not None:
        raise check.refuse(
            f"{layer} was given inputs with a mask, and would not leave out what is masked",
            f"make no mask (mask_zero=False), or use {instead}",
        )
