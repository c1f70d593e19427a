"""LSTM as a layer."""

# pyright: reportPrivateUsage=false
# A class whose bases end in one that pyright does not know, Keras's, counts as nobody's subclass.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax import rnn_ops
from ipujax.keras.checks import check
from ipujax.keras.layers.recurrent import Recurrent
from ipujax.keras.layers.shared import array, serializable


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
      recurrent_activation: the same, but "relu".
      use_bias: False for no `biases`.
      kernel_initializer: of Keras, by name or as it is.
      recurrent_initializer: the same.
      bias_initializer: the same.
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
      **kwargs: of `keras.layers.Layer`. The dtype that a policy computes in must be float16 or
        float32.

    Raises:
      OperatorError: (a `ValueError`) for values that cannot be, or are not supported.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """

    _gates = 4
    _state_names = ("h", "c")
    _runs = rnn_ops.PopnnLSTM
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
        given = locals()
        super().__init__(given)

    def _biases(self) -> Any:
        if not self.unit_forget_bias:
            return super()._biases()

        def start(shape: tuple[int, ...], dtype: Any = None) -> jax.Array:
            others = array(self.bias_initializer((3 * self.units,), dtype=dtype), dtype)
            into, rest = others[: self.units], others[self.units :]
            return jnp.concatenate([into, jnp.ones_like(into), rest])

        return self._weight("biases", self._bias_shape, start)

    def _split(self, given: Any) -> Sequence[Any]:
        if isinstance(given, rnn_ops.LSTMStateTuple):
            return [given.h, given.c]
        return super()._split(given)

    def _run(
        self, parameters: dict[str, jax.Array], inputs: jax.Array, first: list[Any]
    ) -> tuple[jax.Array, list[jax.Array]]:
        h, c = first
        outputs, last = self._operator()(parameters, inputs, rnn_ops.LSTMStateTuple(c, h))
        return outputs, [last.h, last.c]

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """The shapes of the two parts of the state."""
        return self._operator().state_shape(batch_size)
