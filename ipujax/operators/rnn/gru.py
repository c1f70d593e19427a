"""The GRU recurrence: one scan over time, and one for its derivatives.

As in `lstm`, the scans hold only what depends on the step before, and the derivatives by the
weights are products over all steps.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

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
class GRUCell:
    """The activations of a GRU's gates: update, reset and candidate, in this order.

    Attributes:
      activation: the activation of the candidate.
      recurrent_activation: the activation of the two other gates.
      reset_after: whether the reset gate acts on the product of state and weights, and not on
        the state before it.
    """

    activation: str
    recurrent_activation: str
    reset_after: bool

    @property
    def gates(self) -> Gates:
        """The activations of the update and reset gates."""
        return Gates((self.recurrent_activation, self.recurrent_activation))

    @property
    def candidate(self) -> Gates:
        """The activation of the candidate."""
        return Gates((self.activation,))


class Mixing(NamedTuple):
    """Changes the update gate of each step and sample from `z` to `gain * z`, or to 1.

    Attributes:
      gain: [time, batch, 1]; 0 where the state is held.
      held: bool [time, batch, 1]; whether the state stays as it is.
    """

    gain: jax.Array
    held: jax.Array


class Weights(NamedTuple):
    """Weights of a GRU.

    Attributes:
      kernel: [input_size + units, 3 * units]; rows of the inputs first.
      bias: the bias of the products of the inputs, [3 * units].
      state_bias: of what the state gives the candidate, [units]; None unless the reset comes
        after that.
    """

    kernel: jax.Array
    bias: jax.Array
    state_bias: jax.Array | None


_Results = tuple[jax.Array, jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def run_gru_recurrence(
    cell: GRUCell, inputs: jax.Array, weights: Weights, mixing: Mixing | None, h: jax.Array
) -> _Results:
    """Runs the recurrence of a GRU over all time steps.

    Args:
      cell: the activations and the kind of the reset.
      inputs: [time, batch, input_size].
      weights: the weights of the layer.
      mixing: what changes the update gate; None for nothing.
      h: the first state, [batch, units].

    Returns:
      The states after all steps, [time, batch, units], and the last one.
    """
    return _scan_gru(cell, False, inputs, weights, mixing, h)[0]


class _Kept(NamedTuple):
    """The values of each step that the derivatives need; [time, batch, units] but for `gates`.

    Attributes:
      update: the derivative of the state by the input of the update gate.
      reset: the derivative of the reset product by the input of the reset gate.
      candidate: the derivative of the state by the input of the candidate.
      mixed: the derivative of the state by the state before, along the update gate.
      resetting: the value of the reset gate.
      gain: the derivative of the state by the gain; None without `Mixing`.
      gates: the values of update and reset, [time, batch, 2 * units]; None unless coupled.
      activated: the value of the candidate; None unless coupled.
    """

    update: jax.Array
    reset: jax.Array
    candidate: jax.Array
    mixed: jax.Array
    resetting: jax.Array
    gain: jax.Array | None
    gates: jax.Array | None
    activated: jax.Array | None


def _scan_gru(
    cell: GRUCell,
    keep: bool,
    inputs: jax.Array,
    weights: Weights,
    mixing: Mixing | None,
    h: jax.Array,
) -> tuple[_Results, PyTree]:
    """Scans the GRU over time; returns its results and what is kept of each step, or None."""
    units = h.shape[-1]
    of_inputs, of_state = split_kernel(weights.kernel, units)
    of_gates, of_candidate = of_state[:, : 2 * units], of_state[:, 2 * units :]

    def multiply_state(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the state's part of the gates, and the factor of the reset gate."""
        if weights.state_bias is None:
            return h @ of_gates, h
        # Without the barrier, XLA makes slow code of arithmetic on parts of a product.
        both = lax.optimization_barrier(h @ of_state)
        return both[..., : 2 * units], both[..., 2 * units :] + weights.state_bias

    def run_gru_step(h: jax.Array, x: PyTree) -> PyTree:
        projected, mixing = x
        # Of a state that is held nothing else is made, as that might overflow.
        to_gates, partner = multiply_state(h if mixing is None else jnp.where(mixing.held, 0, h))
        gates = cell.gates.apply_activations(projected[..., : 2 * units] + to_gates)
        update, reset = jnp.split(gates, 2, axis=-1)
        reset_product = reset * partner if cell.reset_after else (reset * partner) @ of_candidate
        candidate = cell.candidate.apply_activations(projected[..., 2 * units :] + reset_product)
        mixed = update if mixing is None else jnp.where(mixing.held, 1, mixing.gain * update)
        new_state = mixed * h + (1 - mixed) * candidate
        if not keep:
            return new_state, (new_state, None)
        slopes = jnp.split(cell.gates.slopes(gates), 2, axis=-1)
        change = h - candidate
        kept_values = _Kept(
            (change if mixing is None else mixing.gain * change) * slopes[0],
            partner * slopes[1],
            (1 - mixed) * cell.candidate.slopes(candidate),
            mixed,
            reset,
            None if mixing is None else change * update,
            gates if cell.gates.coupled else None,
            candidate if cell.candidate.coupled else None,
        )
        return new_state, (new_state, kept_values)

    projected = multiply_all_steps(inputs, of_inputs) + weights.bias
    h, (states, kept) = lax.scan(run_gru_step, h, (projected, mixing))
    return (states, h), kept


@functools.partial(run_gru_recurrence.defjvp, symbolic_zeros=True)
def _gru_jvp(cell: GRUCell, primals: PyTree, tangents: PyTree) -> tuple[_Results, _Results]:
    inputs, weights, _, h = primals
    d_inputs, d_weights, d_mixing, d_h = tangents
    results, kept_values = _scan_gru(cell, True, *primals)
    units = h.shape[-1]
    of_inputs, of_state = split_kernel(weights.kernel, units)
    to_gates, to_candidate = of_state[:, : 2 * units].T, of_state[:, 2 * units :].T
    of_weights = _weight_tangents(
        cell,
        d_weights,
        inputs,
        gate_products.states_before_each_step(h, results[0]),
        kept_values.resetting,
    )
    shape = (*inputs.shape[:2], 3 * units)
    by_inputs = gate_products.multiply_tangent(d_inputs, of_inputs)
    d_projected = gate_products.sum_broadcast(shape, h.dtype, by_inputs, *of_weights)
    d_gain = None if d_mixing is None else d_mixing.gain
    d_mixed = (
        None if d_gain is None or isinstance(d_gain, SymbolicZero) else kept_values.gain * d_gain
    )

    def run_gru_tangent_step(
        d_h: jax.Array, x: tuple[jax.Array, jax.Array | None, _Kept]
    ) -> PyTree:
        d_projected, d_mixed, kept_values = x
        outer, candidate_tangent = jnp.split(d_projected, [2 * units], axis=-1)
        outer = cell.gates.center_tangents_of_coupled_gates(
            outer + multiply_by_transposed(d_h, to_gates), kept_values.gates
        )
        update, reset = jnp.split(outer, 2, axis=-1)
        if cell.reset_after:
            partner = kept_values.resetting * multiply_by_transposed(d_h, to_candidate)
            candidate_tangent = candidate_tangent + partner + kept_values.reset * reset
        else:
            partner = kept_values.resetting * d_h + kept_values.reset * reset
            candidate_tangent = candidate_tangent + multiply_by_transposed(partner, to_candidate)
        candidate_tangent = cell.candidate.center_tangents_of_coupled_gates(
            candidate_tangent, kept_values.activated
        )
        new_tangent = (
            kept_values.update * update
            + kept_values.candidate * candidate_tangent
            + kept_values.mixed * d_h
        )
        new_tangent = new_tangent if d_mixed is None else new_tangent + d_mixed
        return new_tangent, new_tangent

    last, states = lax.scan(
        run_gru_tangent_step,
        gate_products.instantiate_tangent(d_h),
        (d_projected, d_mixed, kept_values),
    )
    return results, (states, last)


def _weight_tangents(
    cell: GRUCell, tangents: Weights, inputs: jax.Array, before: jax.Array, resetting: jax.Array
) -> list[jax.Array]:
    """Computes the gate inputs' tangents from those of the weights; empty if all are zero."""
    if all(isinstance(part, SymbolicZero) for part in jax.tree.leaves(tangents)):
        return []
    kernel, bias, state_bias = jax.tree.map(gate_products.instantiate_tangent, tangents)
    outer, candidate_kernel = jnp.split(kernel, [2 * before.shape[-1]], axis=-1)
    to_gates = multiply_all_steps(concatenate_last_axis(inputs, before), outer)
    if cell.reset_after:
        of_inputs, of_state = split_kernel(candidate_kernel, before.shape[-1])
        partner = resetting * (multiply_all_steps(before, of_state) + state_bias)
        return [
            concatenate_last_axis(to_gates, multiply_all_steps(inputs, of_inputs) + partner),
            bias,
        ]
    return [
        concatenate_last_axis(
            to_gates,
            multiply_all_steps(concatenate_last_axis(inputs, resetting * before), candidate_kernel),
        ),
        bias,
    ]
