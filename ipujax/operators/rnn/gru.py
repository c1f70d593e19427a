"""The GRU recurrence: one scan over time, and one for its derivatives.

As in `lstm`, the scans hold only what depends on the step before, and the derivatives by the
weights are products over all steps.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from ipujax.operators.rnn import products
from ipujax.operators.rnn.activations import Gates
from ipujax.operators.rnn.products import cut, product, side_by_side, times_transposed


@dc.dataclass(frozen=True)
class GRUCell:
    """What a GRU does with its gates: update, reset and candidate, in this order.

    Attributes:
      activation: of the candidate.
      recurrent_activation: of the two other gates.
      reset_after: whether the reset gate acts on the product of state and weights, and not on
        the state before it.
    """

    activation: str
    recurrent_activation: str
    reset_after: bool

    @property
    def gates(self) -> Gates:
        """Update and reset."""
        return Gates((self.recurrent_activation, self.recurrent_activation))

    @property
    def candidate(self) -> Gates:
        """The candidate."""
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
      bias: of what the inputs give, [3 * units].
      state_bias: of what the state gives the candidate, [units]; None unless the reset comes
        after that.
    """

    kernel: jax.Array
    bias: jax.Array
    state_bias: jax.Array | None


_Results = tuple[jax.Array, jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def gru(
    cell: GRUCell, inputs: jax.Array, weights: Weights, mixing: Mixing | None, h: jax.Array
) -> _Results:
    """Runs the recurrence.

    Args:
      cell: the activations and the kind of the reset.
      inputs: [time, batch, input_size].
      weights: of the layer.
      mixing: what changes the update gate; None for nothing.
      h: the first state, [batch, units].

    Returns:
      The states after all steps, [time, batch, units], and the last one.
    """
    return _scan(cell, False, inputs, weights, mixing, h)[0]


class _Kept(NamedTuple):
    """What the derivatives need to know of each step; all [time, batch, units] but `gates`.

    Attributes:
      update: the derivative of the state by the input of the update gate.
      reset: that of what the reset gate gives by the gate's input.
      candidate: that of the state by the input of the candidate.
      mixed: that of the state by the state before, along the update gate.
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


def _scan(
    cell: GRUCell,
    keep: bool,
    inputs: jax.Array,
    weights: Weights,
    mixing: Mixing | None,
    h: jax.Array,
) -> tuple[_Results, Any]:
    """The results, and what is kept of each step, or None."""
    units = h.shape[-1]
    of_inputs, of_state = cut(weights.kernel, units)
    of_gates, of_candidate = of_state[:, : 2 * units], of_state[:, 2 * units :]

    def products(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What the state gives the gates, and what the reset gate is multiplied with."""
        if weights.state_bias is None:
            return h @ of_gates, h
        # Without the barrier, XLA makes slow code of arithmetic on parts of a product.
        both = lax.optimization_barrier(h @ of_state)
        return both[..., : 2 * units], both[..., 2 * units :] + weights.state_bias

    def step(h: jax.Array, x: Any) -> Any:
        projected, mixing = x
        # Of a state that is held nothing else is made, as that might overflow.
        to_gates, partner = products(h if mixing is None else jnp.where(mixing.held, 0, h))
        gates = cell.gates.values(projected[..., : 2 * units] + to_gates)
        update, reset = jnp.split(gates, 2, axis=-1)
        inner = reset * partner if cell.reset_after else (reset * partner) @ of_candidate
        candidate = cell.candidate.values(projected[..., 2 * units :] + inner)
        mixed = update if mixing is None else jnp.where(mixing.held, 1, mixing.gain * update)
        after = mixed * h + (1 - mixed) * candidate
        if not keep:
            return after, (after, None)
        slopes = jnp.split(cell.gates.slopes(gates), 2, axis=-1)
        change = h - candidate
        kept = _Kept(
            (change if mixing is None else mixing.gain * change) * slopes[0],
            partner * slopes[1],
            (1 - mixed) * cell.candidate.slopes(candidate),
            mixed,
            reset,
            None if mixing is None else change * update,
            gates if cell.gates.coupled else None,
            candidate if cell.candidate.coupled else None,
        )
        return after, (after, kept)

    projected = product(inputs, of_inputs) + weights.bias
    h, (states, kept) = lax.scan(step, h, (projected, mixing))
    return (states, h), kept


@functools.partial(gru.defjvp, symbolic_zeros=True)
def _derivatives(cell: GRUCell, primals: Any, tangents: Any) -> tuple[_Results, _Results]:
    inputs, weights, _, h = primals
    d_inputs, d_weights, d_mixing, d_h = tangents
    results, kept = _scan(cell, True, *primals)
    units = h.shape[-1]
    of_inputs, of_state = cut(weights.kernel, units)
    to_gates, to_candidate = of_state[:, : 2 * units].T, of_state[:, 2 * units :].T
    of_weights = _by_weights(
        cell, d_weights, inputs, products.shifted(h, results[0]), kept.resetting
    )
    shape = (*inputs.shape[:2], 3 * units)
    by_inputs = products.of_tangents(d_inputs, of_inputs)
    d_projected = products.total(shape, h.dtype, by_inputs, *of_weights)
    d_gain = None if d_mixing is None else d_mixing.gain
    d_mixed = None if d_gain is None or isinstance(d_gain, SymbolicZero) else kept.gain * d_gain

    def step(d_h: jax.Array, x: tuple[jax.Array, jax.Array | None, _Kept]) -> Any:
        d_projected, d_mixed, kept = x
        outer, inner = jnp.split(d_projected, [2 * units], axis=-1)
        outer = cell.gates.centred(outer + times_transposed(d_h, to_gates), kept.gates)
        update, reset = jnp.split(outer, 2, axis=-1)
        if cell.reset_after:
            partner = kept.resetting * times_transposed(d_h, to_candidate)
            inner = inner + partner + kept.reset * reset
        else:
            partner = kept.resetting * d_h + kept.reset * reset
            inner = inner + times_transposed(partner, to_candidate)
        inner = cell.candidate.centred(inner, kept.activated)
        after = kept.update * update + kept.candidate * inner + kept.mixed * d_h
        after = after if d_mixed is None else after + d_mixed
        return after, after

    last, states = lax.scan(step, products.instantiated(d_h), (d_projected, d_mixed, kept))
    return results, (states, last)


def _by_weights(
    cell: GRUCell, tangents: Weights, inputs: jax.Array, before: jax.Array, resetting: jax.Array
) -> list[jax.Array]:
    """What tangents of weights add to the inputs of the gates; nothing if all are zero."""
    if all(isinstance(part, SymbolicZero) for part in jax.tree.leaves(tangents)):
        return []
    kernel, bias, state_bias = jax.tree.map(products.instantiated, tangents)
    outer, inner = jnp.split(kernel, [2 * before.shape[-1]], axis=-1)
    to_gates = product(side_by_side(inputs, before), outer)
    if cell.reset_after:
        of_inputs, of_state = cut(inner, before.shape[-1])
        partner = resetting * (product(before, of_state) + state_bias)
        return [side_by_side(to_gates, product(inputs, of_inputs) + partner), bias]
    return [side_by_side(to_gates, product(side_by_side(inputs, resetting * before), inner)), bias]
