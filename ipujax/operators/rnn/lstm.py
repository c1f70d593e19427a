"""The LSTM recurrence: one scan over time, and one for its derivatives.

Only what depends on the step before is in the scans: one matrix product, and arithmetic on the
gates. What the inputs give is one product over all steps before the scan. The derivatives are
linear and laid out the same way, with the weights' part before the scan; so JAX transposes them to
one scan back, and one product after it for each gradient of weights. Left to JAX, that would be a
sum carried through the scan. The forward scan keeps derivatives, not values, so the other has
little left to compute.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.ground import PyTree
from ipujax.operators.rnn import gate_products
from ipujax.operators.rnn.gate_activations import Gates
from ipujax.operators.rnn.gate_products import (
    concatenate_last_axis,
    multiply_all_steps,
    multiply_by_transposed,
    split_kernel,
)


@dc.dataclass(frozen=True)
class LSTMCell:
    """The activations of an LSTM's gates: input, forget, candidate and output, in this order.

    Attributes:
      activation: the activation of the candidate and of the cell's output.
      recurrent_activation: the activation of the three other gates.
    """

    activation: str
    recurrent_activation: str

    @property
    def gates(self) -> Gates:
        """The activations of the four gates."""
        recurrent = self.recurrent_activation
        return Gates((recurrent, recurrent, self.activation, recurrent))

    @property
    def output(self) -> Gates:
        """The activation of the state, which the output gate multiplies."""
        return Gates((self.activation,))


class Weights(NamedTuple):
    """Weights of an LSTM.

    Attributes:
      kernel: [input_size + units, 4 * units]; rows of the inputs first.
      bias: [4 * units].
    """

    kernel: jax.Array
    bias: jax.Array


_Results = tuple[jax.Array, jax.Array, jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def run_lstm_recurrence(
    cell: LSTMCell, inputs: jax.Array, weights: Weights, c: jax.Array, h: jax.Array
) -> _Results:
    """Runs the recurrence of an LSTM over all time steps.

    Args:
      cell: the activations.
      inputs: [time, batch, input_size].
      weights: the weights of the layer.
      c: the cell's first state, [batch, units].
      h: its first output, [batch, units].

    Returns:
      All outputs, [time, batch, units], the last state and the last output.
    """
    return _scan_lstm(cell, False, inputs, weights, c, h)[0]


class _Kept(NamedTuple):
    """The values of each step that the derivatives need.

    Attributes:
      gates: the derivatives of the state by the inputs of the first three gates, and of the
        output by those of the last, [time, batch, 4 * units].
      state: the derivative of the output by the state, [time, batch, units].
      forget: the derivative of the state by the state before, [time, batch, units].
      values: the values of the gates; None unless they are coupled.
      activated: the value of the state's activation; None unless it is coupled.
    """

    gates: jax.Array
    state: jax.Array
    forget: jax.Array
    values: jax.Array | None
    activated: jax.Array | None


def _scan_lstm(
    cell: LSTMCell, keep: bool, inputs: jax.Array, weights: Weights, c: jax.Array, h: jax.Array
) -> tuple[_Results, PyTree]:
    """Scans the LSTM over time; returns its results and what is kept of each step, or None."""
    of_inputs, of_state = split_kernel(weights.kernel, h.shape[-1])

    def run_lstm_step(state: PyTree, projected: jax.Array) -> PyTree:
        old_state, h = state
        values = cell.gates.apply_activations(projected + h @ of_state)
        into, forget, candidate, out = jnp.split(values, 4, axis=-1)
        c = forget * old_state + into * candidate
        activated = cell.output.apply_activations(c)
        h = out * activated
        if not keep:
            return (c, h), (h, None)
        partners = concatenate_last_axis(candidate, old_state, into, activated)
        kept_values = _Kept(
            partners * cell.gates.slopes(values),
            out * cell.output.slopes(activated),
            forget,
            values if cell.gates.coupled else None,
            activated if cell.output.coupled else None,
        )
        return (c, h), (h, kept_values)

    projected = multiply_all_steps(inputs, of_inputs) + weights.bias
    (c, h), (outputs, kept) = lax.scan(run_lstm_step, (c, h), projected)
    return (outputs, c, h), kept


@functools.partial(run_lstm_recurrence.defjvp, symbolic_zeros=True)
def _lstm_jvp(cell: LSTMCell, primals: PyTree, tangents: PyTree) -> tuple[_Results, _Results]:
    inputs, weights, _, h = primals
    results, kept_values = _scan_lstm(cell, True, *primals)
    of_inputs, of_state = split_kernel(weights.kernel, h.shape[-1])
    to_gates = of_state.T
    d_inputs, d_weights, d_c, d_h = tangents
    shape = (*inputs.shape[:2], of_state.shape[1])
    by_inputs = gate_products.multiply_tangent(d_inputs, of_inputs)
    operands = concatenate_last_axis(inputs, gate_products.states_before_each_step(h, results[0]))
    by_kernel = gate_products.multiply_tangent(operands, d_weights.kernel)
    d_projected = gate_products.sum_broadcast(shape, h.dtype, by_inputs, by_kernel, d_weights.bias)

    def run_lstm_tangent_step(state: PyTree, x: tuple[jax.Array, _Kept]) -> PyTree:
        d_c, d_h = state
        d_projected, kept_values = x
        d_gates = d_projected + multiply_by_transposed(d_h, to_gates)
        d_gates = (
            cell.gates.center_tangents_of_coupled_gates(d_gates, kept_values.values)
            * kept_values.gates
        )
        into, forget, candidate, out = jnp.split(d_gates, 4, axis=-1)
        d_c = into + forget + candidate + kept_values.forget * d_c
        d_h = out + kept_values.state * cell.output.center_tangents_of_coupled_gates(
            d_c, kept_values.activated
        )
        return (d_c, d_h), d_h

    state = gate_products.instantiate_tangent(d_c), gate_products.instantiate_tangent(d_h)
    (d_c, d_h), d_outputs = lax.scan(run_lstm_tangent_step, state, (d_projected, kept_values))
    return results, (d_outputs, d_c, d_h)
