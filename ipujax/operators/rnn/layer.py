"""The base class of recurrent layers: specification, parameters and inputs, all checked."""

from __future__ import annotations

import contextlib
import dataclasses as dc
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.ground import PyTree, check
from ipujax.operators import scopes
from ipujax.operators.rnn.rnn_arguments import (
    check_activation,
    check_layer_dtype,
    require_layer_operand,
)

Initializer = Callable[..., jax.Array]
Parameters = Mapping[str, jax.Array]


@check.guard
@dc.dataclass(eq=False, repr=False)
class Layer:
    """The base class of recurrent layers: specification, parameters and inputs, all checked.

    `rnn_ops.PopnnLSTM` says what the arguments are. Classes of a user's own may derive from the
    layers, and set what they like: so this is not frozen.
    """

    num_units: int
    dtype: DTypeLike = jnp.float32
    partials_dtype: DTypeLike = jnp.float32
    seed: int | None = None
    weights_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None
    activation: Any = "tanh"
    recurrent_activation: Any = "sigmoid"
    name: str | None = None

    _gates: ClassVar[int]

    def __post_init__(self) -> None:
        kind = type(self).__name__
        self.num_units = check.require_integer(self.num_units, f"the num_units of {kind}", 1)
        self.dtype = check_layer_dtype(self.dtype, f"the dtype of {kind}")
        self.partials_dtype = check_layer_dtype(
            self.partials_dtype, f"the partials_dtype of {kind}"
        )
        if self.seed is not None:
            self.seed = check.require_integer(self.seed, f"the seed of {kind}")
        fix = "give (key, shape, dtype) -> array, as jax.nn.initializers.constant(0.1)"
        check.require_function(self.weights_initializer, "weights_initializer", fix, optional=True)
        check.require_function(self.bias_initializer, "bias_initializer", fix, optional=True)
        self.activation = check_activation(self.activation, "activation")
        gate = check_activation(self.recurrent_activation, "recurrent_activation")
        self.recurrent_activation = gate
        check.require_text(self.name, f"the name of {kind}", optional=True)

    @property
    def _layer_name(self) -> str:
        return self.name or type(self).__name__

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
            raise check.value_error(
                f"{self._layer_name} cannot be built for inputs of shape {list(shape)}",
                "give [time, batch, input_size]; input_size must be known",
            )
        if self.seed is not None:
            key = jax.random.key(self.seed)
        if key is None:
            raise check.value_error(
                f"{self._layer_name} has nothing to draw its weights from",
                "give build a key, as jax.random.key(0), or the layer a seed",
            )
        weights_key, bias_key = jax.random.split(key)
        kernel_shape = self._parameter_shapes(shape[2])["kernel"]
        initializer = self.weights_initializer or jax.nn.initializers.glorot_uniform()
        kernel = initializer(weights_key, kernel_shape, self.dtype)
        return {"kernel": kernel, "biases": self._initialize_biases(bias_key)}

    def _initialize_biases(self, key: jax.Array) -> jax.Array:
        initializer = self.bias_initializer or jax.nn.initializers.zeros
        return initializer(key, self._bias_shape, self.dtype)

    @property
    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates, self.num_units)

    def _parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        kernel = (input_size + self.num_units, self._gates * self.num_units)
        return {"kernel": kernel, "biases": self._bias_shape}

    @contextlib.contextmanager
    def _layer_scope(self) -> Generator[None]:
        with jax.named_scope(self._layer_name), scopes.partials_type(self.partials_dtype):
            yield

    def _check_inputs(self, inputs: PyTree, time_major: bool = True) -> jax.Array:
        inputs = require_layer_operand(inputs, self.dtype, f"the inputs of {self._layer_name}")
        if inputs.ndim != 3:
            order = "[time, batch, input_size]" if time_major else "[batch, time, input_size]"
            raise check.value_error(
                f"the inputs of {self._layer_name} have shape {list(inputs.shape)}", f"give {order}"
            )
        return inputs if time_major else jnp.swapaxes(inputs, 0, 1)

    def _check_parameters(self, params: PyTree, input_size: int) -> tuple[jax.Array, jax.Array]:
        """Checks the parameters; returns the kernel and the biases."""
        layer, shapes = self._layer_name, self._parameter_shapes(input_size)
        if not isinstance(params, Mapping) or set(params) != set(shapes):
            has = sorted(params) if isinstance(params, Mapping) else type(params).__name__
            raise check.value_error(
                f"the params of {layer} are {has}, but must be a dict of {sorted(shapes)}",
                "give what `build` returned",
            )
        arrays = {
            n: require_layer_operand(params[n], self.dtype, f"params[{n!r}] of {layer}")
            for n in shapes
        }
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise check.value_error(
                    f"params[{name!r}] of {layer} has shape {list(arrays[name].shape)}, but these "
                    f"inputs need {list(shape)}",
                    "give what `build` returned for inputs of this shape",
                )
        return arrays["kernel"], arrays["biases"]

    def _check_state(self, state: PyTree, batch: int, argument: str) -> jax.Array:
        shape = (batch, self.num_units)
        if state is None:
            return jnp.zeros(shape, self.dtype)
        state = require_layer_operand(state, self.dtype, f"{argument} of {self._layer_name}")
        if state.shape != shape:
            raise check.value_error(
                f"{argument} of {self._layer_name} has shape {list(state.shape)}",
                f"give [batch, units], {list(shape)}",
            )
        return state
