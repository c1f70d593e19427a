"""What recurrent layers share, on the operators of `rnn_ops`.

Their variables are laid out as those of Keras's own layers, so that weights go from one to the
other (fact `rnn.keras_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import rand_ops
from ipujax.checks.arrays import check
from ipujax.keras.layers.shared import (
    Layer,
    array,
    initializer,
    keras,
    plain,
    refuse_mask,
    refuse_unsupported,
    seed_generator,
)
from ipujax.operators.dropout_rate import checked_rate

_UNSUPPORTED: dict[str, Any] = {
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
    """What the layers share; `PopnnLSTM` says what the arguments are.

    A subclass says how many gates it has, which operator it runs, what its states are, and which
    switches it has of its own. Its `__init__` gives all of its arguments, by name.
    """

    _gates: int
    _state_names: tuple[str, ...]
    _runs: Any
    _switches = ("use_bias", "return_sequences", "return_state", "stateful", "time_major")

    def __init__(self, given: Mapping[str, Any]):
        kind = type(self).__name__
        refuse_unsupported(kind, given, _UNSUPPORTED, f"keras.layers.{kind.removeprefix('Popnn')}")
        super().__init__(**given["kwargs"])
        self.units = check.integer(given["units"], f"the units of {self.name}", 1)
        self.activation = _activation(given["activation"])
        self.recurrent_activation = _activation(given["recurrent_activation"])
        for switch in self._switches:
            setattr(self, switch, check.flag(given[switch], f"the {switch} of {self.name}"))
        seed = given["seed"]
        self.seed = None if seed is None else check.integer(seed, f"the seed of {self.name}")
        kernel, recurrent = given["kernel_initializer"], given["recurrent_initializer"]
        self.kernel_initializer = initializer(kernel, "glorot_uniform", self.seed)
        self.recurrent_initializer = initializer(recurrent, "orthogonal", self.seed)
        self.bias_initializer = initializer(given["bias_initializer"], "zeros")
        self.dropout = checked_rate(given["dropout"])
        self.dropout_seed = plain(given["dropout_seed"])
        what = f"the dropout_seed of {self.name}"
        self.seed_generator = seed_generator(self.dropout_seed, what) if self.dropout else None
        self.partials_dtype = given["partials_dtype"]
        self.states: list[Any] = []
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self._operator()  # checks the activations and the dtypes

    def _operator(self, **others: Any) -> Any:
        return self._runs(
            self.units,
            dtype=self.compute_dtype,
            partials_dtype=self.partials_dtype,
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            name=self.name,
            **others,
        )

    def build(self, input_shape: Any) -> None:
        """Makes the variables: the weights, and the states of a stateful layer.

        Raises:
          OperatorError: (a `ValueError`) for inputs that have no three dimensions or no known
            last one; for a batch of unknown size, if the layer is stateful.
        """
        shape = tuple(input_shape)
        if len(shape) != 3 or shape[2] is None:
            raise check.refuse(
                f"{self.name} cannot be built for inputs of shape {list(shape)}",
                "give [batch, time, input_size], or with time_major=True [time, batch, "
                "input_size]; input_size must be known",
            )
        columns = self._gates * self.units
        recurrent = (self.units, columns)
        self.kernel = self._weight("kernel", (shape[2], columns), self.kernel_initializer)
        self.recurrent_kernel = self._weight(
            "recurrent_kernel", recurrent, self.recurrent_initializer
        )
        self.biases = self._biases() if self.use_bias else None
        self.states = self._variable_states(shape[1 if self.time_major else 0])

    @property
    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates * self.units,)

    def _biases(self) -> Any:
        return self._weight("biases", self._bias_shape, self.bias_initializer)

    def _weight(self, name: str, shape: tuple[int, ...], given: Any) -> Any:
        def start(shape: tuple[int, ...], dtype: Any = None) -> jax.Array:
            # Orthogonal matrices cannot be made in float16.
            return array(given(shape, dtype="float32"), dtype)

        return self.add_weight(shape, initializer=start, name=name)

    def _variable_states(self, batch: int | None) -> list[Any]:
        if not self.stateful:
            return []
        if batch is None:
            raise check.refuse(
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
        inputs: Any,
        training: bool | None = None,
        initial_state: Any = None,
        mask: Any = None,
    ) -> Any:
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
        inputs = array(inputs, self.compute_dtype)
        inputs = inputs if self.time_major else jnp.swapaxes(inputs, 0, 1)
        if training and self.seed_generator is not None:
            # One mask for all time steps.
            seed, name = self.seed_generator.next(), f"{self.name}_dropout"
            inputs = rand_ops.dropout(inputs, self.dropout, [1, None, None], seed, name)
        first = self._first_states(initial_state)
        outputs, states = self._run(self._parameters(), inputs, first)
        for variable, state in zip(self.states, states, strict=False):  # none, if not stateful
            variable.assign(state)
        if not self.return_sequences:
            outputs = states[0]
        elif not self.time_major:
            outputs = jnp.swapaxes(outputs, 0, 1)
        return (outputs, *states) if self.return_state else outputs

    def _parameters(self) -> dict[str, jax.Array]:
        """The variables, as the operators take them."""
        kernels = [array(each, self.compute_dtype) for each in (self.kernel, self.recurrent_kernel)]
        if self.biases is None:
            biases = jnp.zeros(self._bias_shape, self.compute_dtype)
        else:
            biases = array(self.biases, self.compute_dtype)
        # The operators' gates come first, and then what biases they have each.
        biases = jnp.moveaxis(biases.reshape(*self._bias_shape[:-1], self._gates, -1), -2, 0)
        return {"kernel": jnp.concatenate(kernels), "biases": biases}

    def _first_states(self, given: Any) -> list[Any]:
        """What the layer starts from: an array for each of its states, or None for zeros."""
        if given is None and not self.stateful:
            return [None] * len(self._state_names)
        states = self._split(self.states if given is None else given)
        if len(states) != len(self._state_names):
            raise check.refuse(
                f"the initial_state of {self.name} has {len(states)} parts",
                f"give {len(self._state_names)}: {', '.join(self._state_names)}",
            )
        return [None if state is None else array(state, self.compute_dtype) for state in states]

    def _split(self, given: Any) -> Sequence[Any]:
        return given if isinstance(given, list | tuple) else [given]

    def _run(
        self, parameters: dict[str, jax.Array], inputs: jax.Array, first: list[Any]
    ) -> tuple[jax.Array, list[jax.Array]]:
        """All outputs of the operator, and its last states; the first of these is an output."""
        raise NotImplementedError

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shapes of the results."""
        batch = input_shape[1 if self.time_major else 0]
        of_state = (batch, self.units)
        outputs = (*input_shape[:2], self.units) if self.return_sequences else of_state
        return (outputs, *(of_state for _ in self._state_names)) if self.return_state else outputs

    def get_config(self) -> dict[str, Any]:
        """The arguments, without those that are not supported."""
        own = {name: getattr(self, name) for name in (*self._switches, "units", "activation")}
        names = ("recurrent_activation", "dropout", "dropout_seed", "seed")
        own |= {name: getattr(self, name) for name in names}
        for name in ("kernel_initializer", "recurrent_initializer", "bias_initializer"):
            own[name] = keras.initializers.serialize(getattr(self, name))
        return super().get_config() | own | {"partials_dtype": np.dtype(self.partials_dtype).name}


def _activation(given: Any) -> Any:
    """The name of an activation, which may be given as Keras's own function."""
    if given is None:
        return "linear"
    return keras.activations.serialize(given) if callable(given) else given
