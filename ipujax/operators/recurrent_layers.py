"""Recurrent layers: LSTM, GRU, and the GRUs that know the lengths of their sequences."""

from __future__ import annotations

import dataclasses as dc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check
from ipujax.operators.rnn.gru import GRUCell, Mixing, run_gru_recurrence
from ipujax.operators.rnn.gru import Weights as GRUWeights
from ipujax.operators.rnn.layer import Layer, Parameters
from ipujax.operators.rnn.lstm import LSTMCell, run_lstm_recurrence
from ipujax.operators.rnn.lstm import Weights as LSTMWeights
from ipujax.operators.rnn.rnn_arguments import (
    is_within_sequence,
    refuse_gradients,
    require_layer_operand,
)
from ipujax.system import log


@check.guard
class LSTMStateTuple(NamedTuple):
    """The state of an LSTM.

    Attributes:
      c: the cell's state, [batch, num_units].
      h: the output of the step before, [batch, num_units].
    """

    c: PyTree
    h: PyTree


@check.guard
class PopnnLSTM(Layer):
    """A time-major LSTM: `c = f * c + i * g`, then `h = o * tanh(c)`.

    Args:
      num_units: how many units the layer has.
      dtype: float16 or float32, of parameters, inputs and results.
      partials_dtype: float16 or float32: the partials type of the layer's matrix products, as
        `scopes.partials_type` sets it.
      seed: an integer to draw the weights from, whatever key `build` is given.
      weights_initializer: `(key, shape, dtype)` to the first kernel; as those of
        `jax.nn.initializers`. Glorot uniform by default.
      bias_initializer: the same for the biases. Zeros by default.
      activation: "tanh", "relu", "softmax", "sigmoid", "hard_sigmoid" or "linear". A function
        stands for its name, whatever it computes, as in the original: `jnp.tanh` for "tanh".
        "hard_sigmoid" is `clip(0.2 * x + 0.5, 0, 1)`.
      recurrent_activation: the same, but for "relu".
      name: the named scope of the layer's operations; that of the class by default.

    Raises:
      OperatorError: (a `ValueError`) if a dtype, an activation or the number of units is none.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """

    _gates = 4

    def __call__(
        self,
        params: Parameters,
        inputs: PyTree,
        initial_state: LSTMStateTuple | None = None,
        training: bool = True,
    ) -> tuple[jax.Array, LSTMStateTuple]:
        """Runs the layer over all time steps.

        Args:
          params: what `build` made.
          inputs: [time, batch, input_size].
          initial_state: two arrays [batch, num_units]; zeros by default, also for a part that is
            None.
          training: False makes it an error that a gradient reaches the results; forward mode is
            refused as well.

        Returns:
          The outputs, [time, batch, num_units], and the last state.

        Raises:
          OperatorError: (a `ValueError`) if `initial_state` is no `LSTMStateTuple`, or an array
            has the wrong shape or dtype.
        """
        training = check.require_flag(training, f"the training of {self._layer_name}")
        if initial_state is not None and not isinstance(initial_state, LSTMStateTuple):
            raise check.value_error(
                f"the initial_state of {self._layer_name} is a {type(initial_state).__name__}",
                "give rnn_ops.LSTMStateTuple(c, h)",
            )
        with self._layer_scope():
            inputs = self._check_inputs(inputs)
            first = initial_state or LSTMStateTuple(None, None)
            c = self._check_state(first.c, inputs.shape[1], "the initial c")
            h = self._check_state(first.h, inputs.shape[1], "the initial h")
            kernel, biases = self._check_parameters(params, inputs.shape[2])
            cell = LSTMCell(self.activation, self.recurrent_activation)
            results: PyTree = run_lstm_recurrence(
                cell, inputs, LSTMWeights(kernel, biases.reshape(-1)), c, h
            )
            if not training:
                results = refuse_gradients(self._layer_name, results)
        outputs, c, h = results
        return outputs, LSTMStateTuple(c, h)

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Returns the shapes of the two parts of the state."""
        return [batch_size, self.num_units], [batch_size, self.num_units]


@check.guard
@dc.dataclass(eq=False, repr=False)
class PopnnGRU(Layer):
    """A time-major GRU: `h = z * h + (1 - z) * candidate`.

    The arguments are those of `PopnnLSTM`, and `reset_after`: whether the reset gate acts on the
    product of the state and its weights, and not on the state before it.
    """

    reset_after: bool = False

    _gates = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reset_after = check.require_flag(
            self.reset_after, f"the reset_after of {self._layer_name}"
        )

    @property
    def _bias_shape(self) -> tuple[int, ...]:
        kinds = (2,) if self.reset_after else ()
        return (self._gates, *kinds, self.num_units)

    def __call__(
        self,
        params: Parameters,
        inputs: PyTree,
        initial_state: PyTree = None,
        training: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the layer over all time steps.

        Args:
          params: what `build` made.
          inputs: [time, batch, input_size].
          initial_state: [batch, num_units]; zeros by default.
          training: False makes it an error that a gradient reaches the results; forward mode is
            refused as well.

        Returns:
          The outputs, [time, batch, num_units], and the last of them (of no steps, the initial
          state).

        Raises:
          OperatorError: (a `ValueError`) if an array has the wrong shape or dtype.
        """
        with self._layer_scope():
            return self._run_recurrence(
                params, self._check_inputs(inputs), initial_state, training, None
            )

    def state_shape(self, batch_size: int) -> list[int]:
        """Returns the shape of the state."""
        return [batch_size, self.num_units]

    def _run_recurrence(
        self,
        params: Parameters,
        inputs: jax.Array,
        state: PyTree,
        training: bool,
        mixing: Mixing | None,
    ) -> tuple[jax.Array, jax.Array]:
        training = check.require_flag(training, f"the training of {self._layer_name}")
        state = self._check_state(state, inputs.shape[1], "the initial_state")
        kernel, biases = self._check_parameters(params, inputs.shape[2])
        state_bias = None
        if self.reset_after:
            # The reset stands between the two biases of the candidate only.
            biases, state_bias = biases[:, 0].at[:2].add(biases[:2, 1]), biases[2, 1]
        cell = GRUCell(self.activation, self.recurrent_activation, self.reset_after)
        weights = GRUWeights(kernel, biases.reshape(-1), state_bias)
        results: PyTree = run_gru_recurrence(cell, inputs, weights, mixing, state)
        return results if training else refuse_gradients(self._layer_name, results)


@check.guard
class PopnnDynamicGRU(PopnnGRU):
    """A GRU that knows how long each of its sequences is.

    The arguments are those of `PopnnGRU`. As in the original, `bias_initializer` changes nothing,
    which is logged: the biases of the gates start as 1, those of the candidate as 0 (fact
    `rnn.dynamic_bias`).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_initializer is not None:
            log.get_logger().warning(
                f"{self._layer_name}: bias_initializer changes nothing; the biases of a "
                f"{type(self).__name__} start as 1 for the gates and 0 for the candidate"
            )

    def _initialize_biases(self, key: jax.Array) -> jax.Array:
        return jnp.ones(self._bias_shape, self.dtype).at[2].set(0)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        params: Parameters,
        inputs: PyTree,
        seq_len: ArrayLike,
        initial_state: PyTree = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the layer over each sequence's own number of steps.

        Args:
          params: what `build` made.
          inputs: [time, batch, input_size]; what lies beyond a sequence's length is not used.
          seq_len: integers [batch]. Values that are only known at run time count as 0 if they
            are negative, and as all time steps if they are more.
          initial_state: [batch, num_units]; zeros by default.
          training: False makes it an error that a gradient reaches the results; forward mode is
            refused as well.
          time_major: False if inputs are [batch, time, input_size] (fact
            `rnn.dynamic_batch_major`).

        Returns:
          The outputs, always [time, batch, num_units], zeros beyond the length of a sequence; and
          the states at the lengths (the initial state for a length of 0), [batch, num_units].

        Raises:
          OperatorError: (a `ValueError`) if an array has the wrong shape or dtype, or if a length
            known while tracing is none.
        """
        with self._layer_scope():
            inputs = self._check_inputs(
                inputs, check.require_flag(time_major, f"the time_major of {self._layer_name}")
            )
            return self._run_within_lengths(params, inputs, seq_len, None, initial_state, training)

    def _run_within_lengths(
        self,
        params: Parameters,
        inputs: jax.Array,
        seq_len: ArrayLike,
        score: jax.Array | None,
        state: PyTree,
        training: bool,
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the layer; steps beyond a sequence's length keep the state."""
        live = is_within_sequence(seq_len, inputs.shape[0], inputs.shape[1], self._layer_name)
        # Padding may hold anything, also NaN, which a product with zero would not stop.
        inputs = jnp.where(live, inputs, 0)
        gain = jnp.ones((), self.dtype) if score is None else 1 - score[..., None]
        mixing = Mixing(jnp.where(live, gain, 0), ~live)
        outputs, state = self._run_recurrence(params, inputs, state, training, mixing)
        return jnp.where(live, outputs, 0), state


@check.guard
class PopnnAUGRU(PopnnDynamicGRU):
    """A GRU with attention: its update gate is `z * (1 - score)`, with one score per step.

    The arguments, and what is said of biases, are those of `PopnnDynamicGRU`.
    """

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        params: Parameters,
        inputs: PyTree,
        seq_len: ArrayLike,
        attention_score: ArrayLike,
        initial_state: PyTree = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the layer over each sequence's own number of steps.

        Args:
          params: what `build` made.
          inputs: [time, batch, input_size].
          seq_len: integers [batch], as for `PopnnDynamicGRU`.
          attention_score: [time, batch] as the inputs are, of the layer's dtype.
          initial_state: [batch, num_units]; zeros by default.
          training: False makes it an error that a gradient reaches the results; forward mode is
            refused as well.
          time_major: False if inputs are [batch, time, input_size] and scores [batch, time].

        Returns:
          What `PopnnDynamicGRU` returns.

        Raises:
          OperatorError: (a `ValueError`) as for `PopnnDynamicGRU`, and if there is not one score
            for each step.
        """
        with self._layer_scope():
            inputs = self._check_inputs(
                inputs, check.require_flag(time_major, f"the time_major of {self._layer_name}")
            )
            score = require_layer_operand(
                attention_score, self.dtype, f"the attention_score of {self._layer_name}"
            )
            steps, batch = inputs.shape[:2]
            expected = (steps, batch) if time_major else (batch, steps)
            if score.shape != expected:
                raise check.value_error(
                    f"the attention_score of {self._layer_name} has shape {list(score.shape)}",
                    f"give one score for each step, {list(expected)}: [time, batch], or with "
                    "time_major=False [batch, time]",
                )
            score = score if time_major else score.T
            return self._run_within_lengths(params, inputs, seq_len, score, initial_state, training)
