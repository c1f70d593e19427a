"""The base of the recurrent layers, on the operators of `rnn_ops`.

The variables are laid out as those of Keras's own layers, so that weights can be copied between
them (fact `rnn.keras_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import Json, Keywords, PyTree, check
from ipujax.keras.layers.shared import (
    Layer,
    convert_variable,
    keras,
    make_seed_generator,
    refuse_mask,
    refuse_unsupported,
    resolve_initializer,
    to_config_value,
)
from ipujax.operators import check_dropout_rate
from ipujax.operators import random as rand_ops

_UNSUPPORTED: Keywords = {
    "kernel_regularizer": None,
    "recurrent_regularizer": None,
    "bias_regularizer": None,
    "activity_regularizer": None,
    "kernel_constraint": None,
    "recurrent_constraint": None,
    "bias_constraint": None,
    "recurrent_dropout": 0.0,
    "implementation": 1,
    "go_backwards": False,
    "unroll": False,
}


class Recurrent(Layer):
    """The base of the recurrent layers; `PopnnLSTM` describes the arguments.

    A subclass sets the number of gates, the operator, the names of the states and the names of its
    boolean arguments. Its `__init__` passes the arguments of Keras's `Layer` as `layer_arguments`,
    and all others by name.
    """

    _gates: int
    _state_names: tuple[str, ...]
    _runs: Any
    _switches = ("use_bias", "return_sequences", "return_state", "stateful", "time_major")

    def __init__(self, layer_arguments: Mapping[str, Any], **arguments: Any):
        kind = type(self).__name__
        refuse_unsupported(
            kind, arguments, _UNSUPPORTED, f"keras.layers.{kind.removeprefix('Popnn')}"
        )
        super().__init__(**layer_arguments)
        self.units = check.require_integer(arguments["units"], f"the units of {self.name}", 1)
        self.activation = _activation_name(arguments["activation"])
        self.recurrent_activation = _activation_name(arguments["recurrent_activation"])
        for switch in self._switches:
            setattr(
                self, switch, check.require_flag(arguments[switch], f"the {switch} of {self.name}")
            )
        seed = arguments["seed"]
        self.seed = (
            None if seed is None else check.require_integer(seed, f"the seed of {self.name}")
        )
        kernel, recurrent = arguments["kernel_initializer"], arguments["recurrent_initializer"]
        self.kernel_initializer = resolve_initializer(kernel, "glorot_uniform", self.seed)
        self.recurrent_initializer = resolve_initializer(recurrent, "orthogonal", self.seed)
        self.bias_initializer = resolve_initializer(arguments["bias_initializer"], "zeros")
        self.dropout = check_dropout_rate(arguments["dropout"])
        self.dropout_seed = to_config_value(arguments["dropout_seed"])
        seed_name = f"the dropout_seed of {self.name}"
        self.seed_generator = (
            make_seed_generator(self.dropout_seed, seed_name) if self.dropout else None
        )
        self.partials_dtype = arguments["partials_dtype"]
        self.states: list[Any] = []
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self._build_operator()  # checks the activations and the dtypes

    def _build_operator(self, **options: Any) -> Any:
        return self._runs(
            self.units,
            dtype=self.compute_dtype,
            partials_dtype=self.partials_dtype,
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            name=self.name,
            **options,
        )

    def build(self, input_shape: Any) -> None:
        """Makes the variables: the weights, and the states of a stateful layer.

        Raises:
          OperatorError: (a `ValueError`) for inputs that have no three dimensions or no known
            last one; for a batch of unknown size, if the layer is stateful.
        """
        shape = tuple(input_shape)
        if len(shape) != 3 or shape[2] is None:
            raise check.value_error(
                f"{self.name} cannot be built for inputs of shape {list(shape)}",
                "give [batch, time, input_size], or with time_major=True [time, batch, "
                "input_size]; input_size must be known",
            )
        columns = self._gates * self.units
        recurrent = (self.units, columns)
        self.kernel = self._make_weight("kernel", (shape[2], columns), self.kernel_initializer)
        self.recurrent_kernel = self._make_weight(
            "recurrent_kernel", recurrent, self.recurrent_initializer
        )
        self.biases = self._make_biases() if self.use_bias else None
        self.states = self._make_state_variables(shape[1 if self.time_major else 0])

    @property
    def _biases_shape(self) -> tuple[int, ...]:
        return (self._gates * self.units,)

    def _make_biases(self) -> object:
        return self._make_weight("biases", self._biases_shape, self.bias_initializer)

    def _make_weight(self, name: str, shape: tuple[int, ...], initialize: Any) -> object:
        def initialize_in_float32(shape: tuple[int, ...], dtype: object = None) -> jax.Array:
            # Orthogonal matrices cannot be made in float16.
            return convert_variable(initialize(shape, dtype="float32"), dtype)

        return self.add_weight(shape, initializer=initialize_in_float32, name=name)

    def _make_state_variables(self, batch: int | None) -> list[object]:
        if not self.stateful:
            return []
        if batch is None:
            raise check.value_error(
                f"{self.name} is stateful, and was given batches of unknown size",
                "say how large they are, as keras.Input(batch_shape=(8, None, 16))",
            )
        return [
            self.add_weight((batch, self.units), initializer="zeros", trainable=False, name=name)
            for name in self._state_names
        ]

    def reset_state(self) -> None:
        """Has a stateful layer start from zeros again."""
        for state in self.states:
            state.assign(jnp.zeros(state.shape, state.dtype))

    def call(
        self,
        inputs: PyTree,
        training: bool | None = None,
        initial_state: PyTree = None,
        mask: Any = None,
    ) -> PyTree:
        """Runs the layer over all time steps.

        Args:
          inputs: `[batch, time, input_size]`, or as `time_major` says.
          training: whether `dropout` drops. Results can be differentiated in any case.
          initial_state: the first state; zeros, or of a stateful layer its last state, by default.
            See the class.
          mask: must be None: all time steps count.

        Returns:
          All outputs, laid out as the inputs, with `return_sequences`; else the last one,
          `[batch, units]`. With `return_state` a tuple of that and the last state's parts.

        Raises:
          OperatorError: (a `ValueError`) for inputs or a state of another shape, and for a mask.
        """
        kind = type(self).__name__
        refuse_mask(self.name, mask, f"keras.layers.{kind.removeprefix('Popnn')}")
        inputs = convert_variable(inputs, self.compute_dtype)
        inputs = inputs if self.time_major else jnp.swapaxes(inputs, 0, 1)
        if training and self.seed_generator is not None:
            # One mask for all time steps.
            seed, name = self.seed_generator.next(), f"{self.name}_dropout"
            inputs = rand_ops.dropout(inputs, self.dropout, [1, None, None], seed, name)
        initial_states = self._convert_initial_state(initial_state)
        outputs, states = self._run_operator(self._operator_parameters(), inputs, initial_states)
        for variable, state in zip(self.states, states, strict=False):  # none, if not stateful
            variable.assign(state)
        if not self.return_sequences:
            outputs = states[0]
        elif not self.time_major:
            outputs = jnp.swapaxes(outputs, 0, 1)
        return (outputs, *states) if self.return_state else outputs

    def _operator_parameters(self) -> dict[str, jax.Array]:
        """Returns the variables in the layout that the operators take."""
        kernels = [
            convert_variable(kernel, self.compute_dtype)
            for kernel in (self.kernel, self.recurrent_kernel)
        ]
        if self.biases is None:
            biases = jnp.zeros(self._biases_shape, self.compute_dtype)
        else:
            biases = convert_variable(self.biases, self.compute_dtype)
        # The operators take biases with the axis of gates first.
        biases = jnp.moveaxis(biases.reshape(*self._biases_shape[:-1], self._gates, -1), -2, 0)
        return {"kernel": jnp.concatenate(kernels), "biases": biases}

    def _convert_initial_state(self, initial_state: PyTree) -> list[object]:
        """Returns an array for each of the initial states, or None for zeros."""
        if initial_state is None and not self.stateful:
            return [None] * len(self._state_names)
        states = self._split_state(self.states if initial_state is None else initial_state)
        if len(states) != len(self._state_names):
            raise check.value_error(
                f"the initial_state of {self.name} has {len(states)} parts",
                f"give {len(self._state_names)}: {', '.join(self._state_names)}",
            )
        return [
            None if state is None else convert_variable(state, self.compute_dtype)
            for state in states
        ]

    def _split_state(self, state: PyTree) -> Sequence[object]:
        return state if isinstance(state, list | tuple) else [state]

    def _run_operator(
        self, parameters: dict[str, jax.Array], inputs: jax.Array, initial_states: list[object]
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Runs the operator; returns all outputs, and the last states, an output first."""
        raise NotImplementedError

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shapes of the results."""
        batch = input_shape[1 if self.time_major else 0]
        state_shape = (batch, self.units)
        outputs = (*input_shape[:2], self.units) if self.return_sequences else state_shape
        return (
            (outputs, *(state_shape for _ in self._state_names)) if self.return_state else outputs
        )

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer, without those that are not supported."""
        arguments = {name: getattr(self, name) for name in (*self._switches, "units", "activation")}
        names = ("recurrent_activation", "dropout", "dropout_seed", "seed")
        arguments |= {name: getattr(self, name) for name in names}
        for name in ("kernel_initializer", "recurrent_initializer", "bias_initializer"):
            arguments[name] = keras.initializers.serialize(getattr(self, name))
        return (
            super().get_config()
            | arguments
            | {"partials_dtype": np.dtype(self.partials_dtype).name}
        )


def _activation_name(activation: object) -> object:
    """Returns the name of an activation, which may be Keras's own function."""
    if activation is None:
        return "linear"
    return keras.activations.serialize(activation) if callable(activation) else activation
