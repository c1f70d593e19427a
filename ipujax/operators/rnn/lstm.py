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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.operators.rnn import products
from ipujax.operators.rnn.activations import Gates
from ipujax.operators.rnn.products import cut, product, side_by_side, times_transposed


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


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
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
    return _scan(cell, False, inputs, weights, c, h)[0]


class _Kept(NamedTuple):
    """What the derivatives need to know of each step.

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
    cell: LSTMCell, keep: bool, inputs: jax.Array, weights: Weights, c: jax.Array, h: jax.Array
) -> tuple[_Results, Any]:
    """The results, and what is kept of each step, or None."""
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

    projected = product(inputs, of_inputs) + weights.bias
    (c, h), (outputs, kept) = lax.scan(step, (c, h), projected)
    return (outputs, c, h), kept


@functools.partial(lstm.defjvp, symbolic_zeros=True)
def _derivatives(cell: LSTMCell, primals: Any, tangents: Any) -> tuple[_Results, _Results]:
    inputs, weights, _, h = primals
    results, kept = _scan(cell, True, *primals)
    of_inputs, of_state = cut(weights.kernel, h.shape[-1])
    to_gates = of_state.T
    d_inputs, d_weights, d_c, d_h = tangents
    shape = (*inputs.shape[:2], of_state.shape[1])
    by_inputs = products.of_tangents(d_inputs, of_inputs)
    operands = side_by_side(inputs, products.shifted(h, results[0]))
    by_kernel = products.of_tangents(operands, d_weights.kernel)
    d_projected = products.total(shape, h.dtype, by_inputs, by_kernel, d_weights.bias)

    def step(state: Any, x: tuple[jax.Array, _Kept]) -> Any:
        d_c, d_h = state
        d_projected, kept = x
        d_gates = d_projected + times_transposed(d_h, to_gates)
        d_gates = cell.gates.centred(d_gates, kept.values) * kept.gates
        into, forget, candidate, out = jnp.split(d_gates, 4, axis=-1)
        d_c = into + forget + candidate + kept.forget * d_c
        d_h = out + kept.state * cell.output.centred(d_c, kept.activated)
        return (d_c, d_h), d_h

    state = products.instantiated(d_c), products.instantiated(d_h)
    (d_c, d_h), d_outputs = lax.scan(step, state, (d_projected, kept))
    return results, (d_outputs, d_c, d_h)
