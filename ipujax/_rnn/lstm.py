"""The LSTM recurrence: one scan over time, and one scan back.

Only what depends on the step before is in the scans: one matrix product, and arithmetic on the
gates. What the inputs give is one product over all steps before the scan, and the gradient of the
weights is one after the scan back; left to JAX, that would be a sum carried through the scan. The
forward scan keeps derivatives, not values, so the scan back has little left to compute.
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
class LSTMCell:
    """What an LSTM does with its gates: input, forget, candidate and output, in this order.

    Attributes:
      activation: of the candidate and of the cell's output.
      recurrent_activation: of the three other gates.
    """

    activation: str
    recurrent_activation: str

    @property
    def gates(self) -> Gates:
        """The four gates."""
        recurrent = self.recurrent_activation
        return Gates((recurrent, recurrent, self.activation, recurrent))

    @property
    def output(self) -> Gates:
        """What the output gate is multiplied with."""
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def lstm(
    cell: LSTMCell, inputs: jax.Array, weights: Weights, c: jax.Array, h: jax.Array
) -> _Results:
    """Runs the recurrence.

    Args:
      cell: the activations.
      inputs: [time, batch, input_size].
      weights: of the layer.
      c: the cell's first state, [batch, units].
      h: its first output, [batch, units].

    Returns:
      All outputs, [time, batch, units], the last state and the last output.
    """
    (c, h), (outputs, _) = _scan(cell, False, inputs, weights, c, h)
    return outputs, c, h


class _Kept(NamedTuple):
    """What the scan back needs to know of each step.

    Attributes:
      gates: the derivatives of the state by the inputs of the first three gates, and of the
        output by those of the last, [time, batch, 4 * units].
      state: the derivative of the output by the state, [time, batch, units].
      forget: the derivative of the state by the state before, [time, batch, units].
      values: of the gates; None unless they are coupled.
      activated: the value of the state's activation; None unless it is coupled.
    """

    gates: jax.Array
    state: jax.Array
    forget: jax.Array
    values: jax.Array | None
    activated: jax.Array | None


def _scan(
    cell: LSTMCell,
    keep: bool,
    inputs: jax.Array,
    weights: Weights,
    c: jax.Array,
    h: jax.Array,
) -> Any:
    of_inputs, of_state = cut(weights.kernel, h.shape[-1])

    def step(state: Any, projected: jax.Array) -> Any:
        before, h = state
        values = cell.gates.values(projected + h @ of_state)
        into, forget, candidate, out = jnp.split(values, 4, axis=-1)
        c = forget * before + into * candidate
        activated = cell.output.values(c)
        h = out * activated
        if not keep:
            return (c, h), (h, None)
        partners = side_by_side(candidate, before, into, activated)
        kept = _Kept(
            partners * cell.gates.slopes(values),
            out * cell.output.slopes(activated),
            forget,
            values if cell.gates.coupled else None,
            activated if cell.output.coupled else None,
        )
        return (c, h), (h, kept)

    return lax.scan(step, (c, h), product(inputs, of_inputs) + weights.bias)


def _forward(
    cell: LSTMCell, inputs: jax.Array, weights: Weights, c: jax.Array, h: jax.Array
) -> tuple[_Results, Any]:
    (last_c, last_h), (outputs, kept) = _scan(cell, True, inputs, weights, c, h)
    return (outputs, last_c, last_h), (inputs, weights.kernel, h, outputs, kept)


def _backward(cell: LSTMCell, residuals: Any, cotangents: _Results) -> Any:
    inputs, kernel, h, outputs, kept = residuals
    given, dc, dh = cotangents
    of_inputs, of_state = (part.T for part in cut(kernel, h.shape[-1]))

    def step(state: Any, x: tuple[jax.Array, _Kept]) -> Any:
        dc, dh = state
        given, kept = x
        dh = dh + given
        dc = dc + cell.output.settled(dh * kept.state, kept.activated)
        gates = side_by_side(dc, dc, dc, dh) * kept.gates
        gates = cell.gates.settled(gates, kept.values)
        return (dc * kept.forget, gates @ of_state), gates

    (dc, dh), gates = lax.scan(step, (dc, dh), (given, kept), reverse=True)
    found = side_by_side(inputs, shifted(h, outputs))
    into = Weights(summed_product(found, gates), jnp.sum(gates, axis=(0, 1)))
    return product(gates, of_inputs), into, dc, dh


lstm.defvjp(_forward, _backward)
