"""LSTM as a layer."""

# pyright: reportPrivateUsage=false
# Pyright does not know Keras's base class, and takes its subclasses for no subclass of anything.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.ground import PyTree
from ipujax.keras.keras_checks import check
from ipujax.keras.layers.keras_recurrent import Recurrent
from ipujax.keras.layers.shared import convert_variable, serializable
from ipujax.operators import recurrent_layers


@check.guard
@serializable
class PopnnLSTM(Recurrent):
    """A layer of long short-term memory: `c = f * c + i * g`, then `h = o * tanh(c)`.

    Seed 001, 18.13; on `rnn_ops.PopnnLSTM`. Variables: `kernel`, `[input_size, 4 * units]`,
    `recurrent_kernel`, `[units, 4 * units]`, and `biases`, `[4 * units]`; gates are input, forget,
    candidate and output. An `initial_state` is a pair `[h, c]`, as Keras has it, or an
    `rnn_ops.LSTMStateTuple`; the last state is `h, c`.

    Args:
      units: how many units the layer has.
      activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid"; None for the identity.
        "hard_sigmoid" is that of the original, `clip(0.2 * x + 0.5, 0, 1)`.
      recurrent_activation: as `activation`, except "relu".
      use_bias: False for no `biases`.
      kernel_initializer: an initializer of Keras, or its name.
      recurrent_initializer: an initializer of Keras, or its name.
      bias_initializer: an initializer of Keras, or its name.
      unit_forget_bias: whether the biases of the forget gate start as 1, whatever
        `bias_initializer` gives the others (fact `rnn.keras_forget_bias`).
      kernel_regularizer: must be None, as must be the other regularizers and the constraints.
      recurrent_regularizer: see `kernel_regularizer`.
      bias_regularizer: see `kernel_regularizer`.
      activity_regularizer: see `kernel_regularizer`.
      kernel_constraint: see `kernel_regularizer`.
      recurrent_constraint: see `kernel_regularizer`.
      bias_constraint: see `kernel_regularizer`.
      dropout: the share of the inputs to drop in training, in [0, 1): one mask for all time steps.
      dropout_seed: as the seed of `Dropout`.
      recurrent_dropout: must be 0.
      implementation: must be 1.
      return_sequences: whether all outputs are returned, and not only the last.
      return_state: whether the last state is returned, too.
      go_backwards: must be False.
      stateful: whether each batch starts from the last state of the one before; `reset_state`
        has the next start from zeros.
      unroll: must be False.
      partials_dtype: float16 or float32: the partials type of the layer's matrix products, as
        `scopes.partials_type` sets it.
      seed: an integer that random initializers given by name start from.
      time_major: whether inputs and outputs are `[time, batch, ...]`, and not `[batch, time, ...]`.
      **kwargs: arguments of `keras.layers.Layer`. The dtype that a policy computes in must be
        float16 or float32.

    Raises:
      OperatorError: (a `ValueError`) for values that cannot be, or are not supported.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """

    _gates = 4
    _state_names = ("h", "c")
    _runs = recurrent_layers.PopnnLSTM
    _switches = (*Recurrent._switches, "unit_forget_bias")

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: None = None,
        recurrent_regularizer: None = None,
        bias_regularizer: None = None,
        activity_regularizer: None = None,
        kernel_constraint: None = None,
        recurrent_constraint: None = None,
        bias_constraint: None = None,
        dropout: float = 0.0,
        dropout_seed: Any = None,
        recurrent_dropout: float = 0.0,
        implementation: int = 1,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        partials_dtype: Any = jnp.float32,
        seed: int | None = None,
        time_major: bool = False,
        **kwargs: Any,
    ):
        super().__init__(
            kwargs, units=units, activation=activation, recurrent_activation=recurrent_activation,
            use_bias=use_bias, kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer, bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias, kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer, bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint, bias_constraint=bias_constraint,
            dropout=dropout, dropout_seed=dropout_seed, recurrent_dropout=recurrent_dropout,
            implementation=implementation, return_sequences=return_sequences,
            return_state=return_state, go_backwards=go_backwards, stateful=stateful, unroll=unroll,
            partials_dtype=partials_dtype, seed=seed, time_major=time_major,
        )  # fmt: skip

    def _make_biases(self) -> object:
        if not self.unit_forget_bias:
            return super()._make_biases()

        def initialize_biases(shape: tuple[int, ...], dtype: object = None) -> jax.Array:
            biases_without_forget = convert_variable(
                self.bias_initializer((3 * self.units,), dtype=dtype), dtype
            )
            input_biases, later_biases = (
                biases_without_forget[: self.units],
                biases_without_forget[self.units :],
            )
            return jnp.concatenate([input_biases, jnp.ones_like(input_biases), later_biases])

        return self._make_weight("biases", self._biases_shape, initialize_biases)

    def _split_state(self, state: PyTree) -> Sequence[object]:
        if isinstance(state, recurrent_layers.LSTMStateTuple):
            return [state.h, state.c]
        return super()._split_state(state)

    def _run_operator(
        self, parameters: dict[str, jax.Array], inputs: jax.Array, initial_states: list[object]
    ) -> tuple[jax.Array, list[jax.Array]]:
        h, c = initial_states
        outputs, last = self._build_operator()(
            parameters, inputs, recurrent_layers.LSTMStateTuple(c, h)
        )
        return outputs, [last.h, last.c]

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Returns the shapes of the two parts of the state."""
        return self._build_operator().state_shape(batch_size)
