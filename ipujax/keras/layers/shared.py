"""The base of the layers, and their handling of variables, seeds and unsupported arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ipujax.doors.keras import keras_backend
from ipujax.ground import IPUError, PyTree, check

keras = keras_backend.import_keras()

serializable = keras.saving.register_keras_serializable(package="ipujax")
"""Registers a class, so that Keras finds it when it loads a model."""


class Layer(keras.layers.Layer):
    """The base of the layers, whose output shapes and errors are known when a model is built."""

    def compute_output_spec(self, *args: object, **kwargs: object) -> Any:
        """Returns the shapes and dtypes of the results, by tracing the call."""
        # Keras would use `compute_output_shape`, and not find the inputs that `call` refuses.
        try:
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        except IPUError as error:
            # Keras wraps an error in one that blames the author of the layer.
            raise error.__context__ or error from None

    def compute_output_shape(self, input_shape: object) -> Any:
        """Returns the shape of the results: by default that of the inputs."""
        return input_shape


def convert_variable(variable: PyTree, dtype: object) -> jax.Array:
    """Converts a variable, or a value, to an array of a dtype."""
    return keras.ops.convert_to_tensor(variable, dtype=dtype)


def resolve_initializer(requested: object, default: str, seed: int | None = None) -> Any:
    """Returns Keras's initializer for a name or an object, or the default for None.

    Args:
      requested: what the user asks for.
      default: the name of the one that None stands for.
      seed: the seed of a random initializer that is given by name.
    """
    resolved = keras.initializers.get(default if requested is None else requested)
    if seed is None or not (requested is None or isinstance(requested, str)):
        return resolved
    config = resolved.get_config()
    return type(resolved).from_config(config | {"seed": seed}) if "seed" in config else resolved


def make_seed_generator(seed: object, seed_name: str) -> Any:
    """Returns a generator of seeds, a part of the layer's state; equal seeds start equally.

    Args:
      seed: an integer, or a pair of integers of 32 bits; None for a random start, which
        `keras.utils.set_random_seed` decides.
      seed_name: the name of the seed in errors.

    Raises:
      OperatorError: (a `ValueError`) the seed is neither.
    """
    if seed is None:
        return keras.random.SeedGenerator()
    words = np.asarray(seed)
    if not np.issubdtype(words.dtype, np.integer) or words.shape not in ((), (2,)):
        raise check.value_error(
            f"{seed_name} is {seed!r}", "give an integer, or a pair of them: seed=[1, 2]"
        )
    entropy = [int(word) & 0xFFFFFFFFFFFFFFFF for word in np.atleast_1d(words)]
    return keras.random.SeedGenerator(int(np.random.SeedSequence(entropy).generate_state(1)[0]))


def to_config_value(seed: object) -> Any:
    """Returns integers, or None, in a form that a configuration can hold."""
    return seed if seed is None or isinstance(seed, int) else np.asarray(seed).tolist()


def refuse_unsupported(
    layer: str, arguments: Mapping[str, object], defaults: Mapping[str, object], instead: str
) -> None:
    """Refuses arguments that the original accepted for Keras's sake, and did not support.

    Args:
      layer: the name of the layer's class.
      arguments: the arguments by name; those that are not among `defaults` pass.
      defaults: the only supported value of each argument.
      instead: the layer to use instead, for the message.

    Raises:
      OperatorError: (a `ValueError`) an argument that is not its default.
    """
    for name, default in defaults.items():
        value = arguments.get(name, default)
        if value is not default and value != default:
            raise check.value_error(
                f"the {name} of {layer} is {value!r}, but only {default!r} is supported",
                f"leave it out, or use {instead}",
            )


def refuse_mask(layer: str, mask: object, instead: str) -> None:
    """Refuses a mask on the inputs, given or put there by an earlier layer.

    Raises:
      OperatorError: (a `ValueError`) the inputs have a mask.
    """
    if mask is not None:
        raise check.value_error(
            f"{layer} was given inputs with a mask, and would not leave out what is masked",
            f"make no mask (mask_zero=False), or use {instead}",
        )
