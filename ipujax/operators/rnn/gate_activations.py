"""Activations of recurrent gates, with derivatives computed from the activation's value.

A backward pass then needs no more than the values that the forward pass kept, as in popnn.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import PyTree


@dc.dataclass(frozen=True)
class Activation:
    """A function of one gate.

    Attributes:
      value: computes the function.
      slope: its derivative, given its value.
      stretch: `s` if the function is `s * tanh(s * x) + 1 - s`, else None.
      coupled: whether the units of a gate depend on each other. Then the cotangent of the
        function's input is `e - y * sum(e)`, with `e` slope times cotangent and `y` its value.
    """

    value: Callable[[jax.Array], jax.Array]
    slope: Callable[[jax.Array], jax.Array]
    stretch: float | None = None
    coupled: bool = False


def _sigmoid_by_tanh(x: jax.Array) -> jax.Array:
    return 0.5 * jnp.tanh(0.5 * x) + 0.5  # which XLA makes faster code of than of `logistic`


def _hard_sigmoid(x: jax.Array) -> jax.Array:
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)


def _hard_slope(y: jax.Array) -> jax.Array:
    return jnp.where((y > 0) & (y < 1), 0.2, 0.0).astype(y.dtype)


ACTIVATIONS = {
    "tanh": Activation(jnp.tanh, lambda y: 1 - y * y, stretch=1.0),
    "relu": Activation(jax.nn.relu, lambda y: (y > 0).astype(y.dtype)),
    "softmax": Activation(jax.nn.softmax, lambda y: y, coupled=True),
    "sigmoid": Activation(_sigmoid_by_tanh, lambda y: y * (1 - y), stretch=0.5),
    "hard_sigmoid": Activation(_hard_sigmoid, _hard_slope),
    "linear": Activation(lambda x: x, jnp.ones_like),
}


@dc.dataclass(frozen=True)
class Gates:
    """Gates that lie side by side in the last dimension, each with its activation.

    Attributes:
      names: the names of the activations, one per gate.
    """

    names: tuple[str, ...]

    @property
    def coupled(self) -> bool:
        """True if derivatives need the values of the gates."""
        return any(gate.coupled for gate in self._activations)

    def apply_activations(self, x: jax.Array) -> jax.Array:
        """Returns the activations of `x`, [..., gates * units].

        Where all are of the shape of tanh, one tanh runs over all gates; XLA makes faster code
        of that than of separate parts. The barrier keeps values from being computed in parts.
        """
        stretches = self._stretch_of_units(x)
        if stretches is None:
            values = self._map_gates(lambda gate, part: gate.value(part), x)
        else:
            values = stretches * jnp.tanh(stretches * x) + (1 - stretches)
        return jax.lax.optimization_barrier(values)

    def slopes(self, y: jax.Array) -> jax.Array:
        """Returns the derivatives of the activations whose values are `y`, [..., gates * units]."""
        stretches = self._stretch_of_units(y)
        if stretches is None:
            return self._map_gates(lambda gate, part: gate.slope(part), y)
        offset = y - (1 - stretches)
        return stretches * stretches - offset * offset

    def center_tangents_of_coupled_gates(
        self, tangent: jax.Array, y: jax.Array | None
    ) -> jax.Array:
        """Subtracts from tangents of coupled gates their mean; other gates' stay as they are.

        Args:
          tangent: [..., gates * units].
          y: the values of the gates; None unless they are `coupled`.
        """
        if y is None:
            return tangent
        parts = zip(
            self._activations, self._split_gates(tangent), self._split_gates(y), strict=True
        )
        centred = [
            part - jnp.sum(value * part, axis=-1, keepdims=True) if gate.coupled else part
            for gate, part, value in parts
        ]
        return jnp.concatenate(centred, axis=-1)

    @property
    def _activations(self) -> list[Activation]:
        return [ACTIVATIONS[name] for name in self.names]

    def _stretch_of_units(self, x: jax.Array) -> PyTree:
        """Returns the stretch of every unit as a constant; None where separate gates are faster."""
        stretches = [gate.stretch for gate in self._activations if gate.stretch is not None]
        if len(stretches) < len(self.names) or len(set(stretches)) == 1:
            return None
        return np.repeat(stretches, x.shape[-1] // len(self.names)).astype(x.dtype)

    def _map_gates(
        self, function: Callable[[Activation, jax.Array], jax.Array], x: jax.Array
    ) -> jax.Array:
        if len(set(self.names)) == 1 and not self.coupled:
            return function(self._activations[0], x)
        parts = zip(self._activations, self._split_gates(x), strict=True)
        return jnp.concatenate([function(gate, part) for gate, part in parts], axis=-1)

    def _split_gates(self, x: jax.Array) -> list[jax.Array]:
        return jnp.split(x, len(self.names), axis=-1)
