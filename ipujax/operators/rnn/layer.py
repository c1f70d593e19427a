"""What recurrent layers share: a checked specification, parameters, and checked inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import scopes
from ipujax.checks.arrays import check
from ipujax.operators.rnn.arguments import (
    check_activation,
    check_dtype,
    check_parameters,
    operand,
)

Initializer = Callable[..., jax.Array]
Parameters = Mapping[str, jax.Array]


class Layer:
    """What the layers share: their specification, checked, their parameters and their inputs.

    `rnn_ops.PopnnLSTM` says what the arguments are.
    """

    _gates: ClassVar[int]

    def __init__(
        self,
        num_units: int,
        dtype: Any = jnp.float32,
        partials_dtype: Any = jnp.float32,
        seed: int | None = None,
        weights_initializer: Initializer | None = None,
        bias_initializer: Initializer | None = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
    ) -> None:
        kind = type(self).__name__
        self._units = check.integer(num_units, f"the num_units of {kind}", 1)
        self._dtype = check_dtype(dtype, f"the dtype of {kind}")
        self._partials_dtype = check_dtype(partials_dtype, f"the partials_dtype of {kind}")
        self._seed = None if seed is None else check.integer(seed, f"the seed of {kind}")
        self._weights_initializer = _initializer(weights_initializer, "weights_initializer")
        self._bias_initializer = _initializer(bias_initializer, "bias_initializer")
        self._activation = check_activation(activation, "activation")
        self._recurrent_activation = check_activation(recurrent_activation, "recurrent_activation")
        self._name = check.text(name, f"the name of {kind}", optional=True) or kind

    @property
    def num_units(self) -> int:
        """How many units the layer has."""
        return self._units

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of parameters, inputs and results."""
        return self._dtype

    def build(
        self, key: jax.Array | None, input_shape: Sequence[int | None]
    ) -> dict[str, jax.Array]:
        """Makes the layer's parameters.

        Args:
          key: a JAX key; it may be None if the layer has a `seed`.
          input_shape: `[time, batch, input_size]`; only the last must be known.

        Returns:
          `{"kernel": [input_size + num_units, gates * num_units], "biases": [gates, num_units]}`.
          Rows of the kernel: inputs first. Gates of an LSTM: input, forget, candidate, output; of
          a GRU: update, reset, candidate (facts `rnn.lstm_layout`, `rnn.gru_layout`). With
          `reset_after`, biases are `[gates, 2, num_units]`: of the inputs, then of the state.

        Raises:
          OperatorError: (a `ValueError`) if the shape has no three dimensions or no last one, or
            if there is neither a key nor a seed.
        """
        shape = tuple(input_shape)
        if len(shape) != 3 or shape[2] is None:
            raise check.refuse(
                f"{self._name} cannot be built for inputs of shape {list(shape)}",
                "give [time, batch, input_size]; input_size must be known",
            )
        if self._seed is not None:
            key = jax.random.key(self._seed)
        if key is None:
            raise check.refuse(
                f"{self._name} has nothing to draw its weights from",
                "give build a key, as jax.random.key(0), or the layer a seed",
            )
        weights_key, bias_key = jax.random.split(key)
        kernel_shape = self._shapes(shape[2])["kernel"]
        initializer = self._weights_initializer or jax.nn.initializers.glorot_uniform()
        kernel = initializer(weights_key, kernel_shape, self._dtype)
        return {"kernel": kernel, "biases": self._biases(bias_key)}

    def _biases(self, key: jax.Array) -> jax.Array:
        initializer = self._bias_initializer or jax.nn.initializers.zeros
        return initializer(key, self._bias_shape, self._dtype)

    @property
    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates, self._units)

    def _shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        kernel = (input_size + self._units, self._gates * self._units)
        return {"kernel": kernel, "biases": self._bias_shape}

    @contextlib.contextmanager
    def _scope(self) -> Generator[None]:
        with jax.named_scope(self._name), scopes.partials_type(self._partials_dtype):
            yield

    def _inputs(self, inputs: Any, time_major: bool = True) -> jax.Array:
        inputs = operand(inputs, self._dtype, f"the inputs of {self._name}")
        if inputs.ndim != 3:
            order = "[time, batch, input_size]" if time_major else "[batch, time, input_size]"
            raise check.refuse(
                f"the inputs of {self._name} have shape {list(inputs.shape)}", f"give {order}"
            )
        return inputs if time_major else jnp.swapaxes(inputs, 0, 1)

    def _parameters(self, params: Parameters, input_size: int) -> tuple[jax.Array, jax.Array]:
        return check_parameters(params, self._shapes(input_size), self._dtype, self._name)

    def _state(self, state: Any, batch: int, what: str) -> jax.Array:
        if state is None:
            return jnp.zeros((batch, self._units), self._dtype)
        state = operand(state, self._dtype, f"{what} of {self._name}")
        if state.shape != (batch, self._units):
            raise check.refuse(
                f"{what} of {self._name} has shape {list(state.shape)}",
                f"give [batch, units], {[batch, self._units]}",
            )
        return state


def _initializer(given: Any, what: str) -> Any:
    fix = "give (key, shape, dtype) -> array, as jax.nn.initializers.constant(0.1)"
    return check.function(given, what, fix, optional=True)
