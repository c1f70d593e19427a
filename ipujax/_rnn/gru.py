"""The GRU recurrence: one scan over time, and one scan back.

As in `lstm`, the scans hold only what depends on the step before, and the gradients of the
weights are one or two products over all steps after the scan back.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax._rnn.activations import Gates
from ipujax._rnn.products import cut, product, shifted, side_by_side, summed_product


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
    """Changes the update gate of each step and sample from `z` to `gain * z + hold`.

    Attributes:
      gain: [time, batch, 1].
      hold: [time, batch, 1]; 1 (and no gain) leaves the state as it is.
    """

    gain: jax.Array
    hold: jax.Array


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
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
    h, (states, _) = _scan(cell, False, inputs, weights, mixing, h)
    return states, h


class _Kept(NamedTuple):
    """What the scan back needs to know of each step; all [time, batch, units] but `gates`.

    Attributes:
      update: the derivative of the state by the input of the update gate.
      reset: that of what the reset gate gives by the gate's input.
      candidate: that of the state by the input of the candidate.
      mixed: that of the state by the state before, along the update gate.
      resetting: the value of the reset gate.
      change: the state before less the candidate, and `update` the value of its gate; None
        without `Mixing`.
      gates: the values of update and reset, [time, batch, 2 * units]; None unless coupled.
      activated: the value of the candidate; None unless coupled.
    """

    update: jax.Array
    reset: jax.Array
    candidate: jax.Array
    mixed: jax.Array
    resetting: jax.Array
    change: tuple[jax.Array, jax.Array] | None
    gates: jax.Array | None
    activated: jax.Array | None


def _scan(
    cell: GRUCell,
    keep: bool,
    inputs: jax.Array,
    weights: Weights,
    mixing: Mixing | None,
    h: jax.Array,
) -> Any:
    units = h.shape[-1]
    of_inputs, of_state = cut(weights.kernel, units)
    # Two products where one could do: XLA makes slow code of arithmetic on parts of a product.
    of_gates, of_candidate = of_state[:, : 2 * units], of_state[:, 2 * units :]

    def step(h: jax.Array, x: Any) -> Any:
        projected, mixing = x
        gates = cell.gates.values(projected[..., : 2 * units] + h @ of_gates)
        update, reset = jnp.split(gates, 2, axis=-1)
        if weights.state_bias is None:
            partner = h
            inner = (reset * h) @ of_candidate
        else:
            partner = h @ of_candidate + weights.state_bias
            inner = reset * partner
        candidate = cell.candidate.values(projected[..., 2 * units :] + inner)
        mixed = update if mixing is None else mixing.gain * update + mixing.hold
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
            None if mixing is None else (change, update),
            gates if cell.gates.coupled else None,
            candidate if cell.candidate.coupled else None,
        )
        return after, (after, kept)

    return lax.scan(step, h, (product(inputs, of_inputs) + weights.bias, mixing))


def _forward(
    cell: GRUCell, inputs: jax.Array, weights: Weights, mixing: Mixing | None, h: jax.Array
) -> tuple[_Results, Any]:
    last, (states, kept) = _scan(cell, True, inputs, weights, mixing, h)
    return (states, last), (inputs, weights.kernel, h, states, kept)


def _backward(cell: GRUCell, residuals: Any, cotangents: _Results) -> Any:
    inputs, kernel, h, states, kept = residuals
    given, dh = cotangents
    of_inputs, of_state = cut(kernel, h.shape[-1])
    units = h.shape[-1]
    to_gates, to_candidate = of_state[:, : 2 * units].T, of_state[:, 2 * units :].T

    def step(dh: jax.Array, x: tuple[jax.Array, _Kept]) -> Any:
        given, kept = x
        dh = dh + given
        inner = cell.candidate.settled(dh * kept.candidate, kept.activated)
        reset = inner if cell.reset_after else inner @ to_candidate
        outer = side_by_side(dh * kept.update, reset * kept.reset)
        outer = cell.gates.settled(outer, kept.gates)
        reset = reset * kept.resetting
        reset = reset @ to_candidate if cell.reset_after else reset
        below = dh * kept.mixed + reset + outer @ to_gates
        return below, (side_by_side(outer, inner), _mixing(dh, kept.change))

    dh, (gates, mixing) = lax.scan(step, dh, (given, kept), reverse=True)
    before = shifted(h, states)
    into = (_into_after if cell.reset_after else _into_before)(inputs, before, kept, gates)
    return product(gates, of_inputs.T), into, mixing, dh


def _mixing(dh: jax.Array, change: tuple[jax.Array, jax.Array] | None) -> Mixing | None:
    if change is None:
        return None
    hold = dh * change[0]
    gain = hold * change[1]
    return Mixing(*(jnp.sum(part, axis=-1, keepdims=True) for part in (gain, hold)))


def _into_before(inputs: jax.Array, before: jax.Array, kept: _Kept, gates: jax.Array) -> Weights:
    units = before.shape[-1]
    outer = summed_product(side_by_side(inputs, before), gates[..., : 2 * units])
    inner = side_by_side(inputs, kept.resetting * before)
    inner = summed_product(inner, gates[..., 2 * units :])
    return Weights(side_by_side(outer, inner), jnp.sum(gates, axis=(0, 1)), None)


def _into_after(inputs: jax.Array, before: jax.Array, kept: _Kept, gates: jax.Array) -> Weights:
    units = before.shape[-1]
    inner = gates[..., 2 * units :] * kept.resetting
    of_state = side_by_side(gates[..., : 2 * units], inner)
    kernel = [summed_product(inputs, gates), summed_product(before, of_state)]
    biases = (jnp.sum(part, axis=(0, 1)) for part in (gates, inner))
    return Weights(jnp.concatenate(kernel), *biases)


gru.defvjp(_forward, _backward)
