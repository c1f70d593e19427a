"""GRU as a layer."""

# pyright: reportPrivateUsage=false
# Pyright does not know Keras's base class, and takes its subclasses for no subclass of anything.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax.keras.keras_checks import check
from ipujax.keras.layers.keras_recurrent import Recurrent
from ipujax.keras.layers.shared import serializable
from ipujax.operators import recurrent_layers


@check.guard
@serializable
class PopnnGRU(Recurrent):
    """A layer of gated recurrent units: `h = z * h + (1 - z) * candidate`.

    Seed 001, 18.13; on `rnn_ops.PopnnGRU`. Variables: `kernel`, `[input_size, 3 * units]`,
    `recurrent_kernel`, `[units, 3 * units]`, and `biases`, `[3 * units]`, or with `reset_after`
    `[2, 3 * units]`, of the inputs and of the state; gates are update, reset and candidate.
    An `initial_state` is `[batch, units]`, and so is the last state.

    The arguments and errors are those of `PopnnLSTM`, without `unit_forget_bias`.

    Args:
      reset_after: whether the reset gate acts on the product of the state and its weights, and
        not on the state before it.
    """

    _gates = 3
    _state_names = ("h",)
    _runs = recurrent_layers.PopnnGRU
    _switches = (*Recurrent._switches, "reset_after")

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
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
        reset_after: bool = True,
        seed: int | None = None,
        partials_dtype: Any = jnp.float32,
        time_major: bool = False,
        **kwargs: Any,
    ):
        super().__init__(
            kwargs, units=units, activation=activation, recurrent_activation=recurrent_activation,
            use_bias=use_bias, kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer, bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer, recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer, activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint, recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint, dropout=dropout, dropout_seed=dropout_seed,
            recurrent_dropout=recurrent_dropout, implementation=implementation,
            return_sequences=return_sequences, return_state=return_state, go_backwards=go_backwards,
            stateful=stateful, unroll=unroll, reset_after=reset_after, seed=seed,
            partials_dtype=partials_dtype, time_major=time_major,
        )  # fmt: skip

    @property
    def _biases_shape(self) -> tuple[int, ...]:
        kinds = (2,) if self.reset_after else ()
        return (*kinds, *super()._biases_shape)

    def _run_operator(
        self, parameters: dict[str, jax.Array], inputs: jax.Array, initial_states: list[Any]
    ) -> tuple[jax.Array, list[jax.Array]]:
        operator = self._build_operator(reset_after=self.reset_after)
        outputs, last = operator(parameters, inputs, initial_states[0])
        return outputs, [last]

    def state_shape(self, batch_size: int) -> list[int]:
        """Returns the shape of the state."""
        return self._build_operator().state_shape(batch_size)
