"""The results of one run of a checked pipeline, with the gradients of its weight update."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.operators import cross_replica_sum
from ipujax.optimizers import IpuOptimizer, apply_gradients, has_gradient
from ipujax.pipelines import Pytree


@dc.dataclass(frozen=True)
class PipelineResults:
    """The results of one run of a pipeline.

    Attributes:
      outputs: the outputs of the last stage; replicas are consecutive within a micro-batch.
      replicas: how many there are.
      variables: the variables after the update.
      state: the optimizer's state after the update.
      gradients: the gradients of replica 0.
      summed: the sum of all replicas' gradients.
      untrained: the untrained state of replica 0.
    """

    outputs: list[Pytree]
    replicas: int
    variables: Pytree = None
    state: Pytree = None
    gradients: Pytree = None
    summed: Pytree = None
    untrained: Pytree = None


class GradientRecorder(IpuOptimizer):
    """An optimizer that keeps the gradients of the weight update in its state."""

    def init(self, params: Pytree) -> tuple[Pytree, Pytree, Pytree]:
        """Returns the initial state, with zeros for the gradients."""
        return make_zero_gradients(params), make_zero_gradients(params), super().init(params)

    def apply_gradients(
        self,
        gradients: Pytree,
        state: tuple[Pytree, Pytree, Pytree],
        params: Pytree = None,
        *args: object,
        **extra: object,
    ) -> tuple[Pytree, tuple[Pytree, Pytree, Pytree]]:
        """Applies the wrapped optimizer, and records the gradients."""
        updates, state_of_wrapped_optimizer = apply_gradients(
            self.wrapped, gradients, state[2], params, *args, **extra
        )
        wide = jax.tree.map(lambda g, v: g.astype(_recording_dtype(v)), gradients, params)
        return updates, (wide, jax.tree.map(cross_replica_sum, wide), state_of_wrapped_optimizer)


def gradient_in_64_bits(gradient: jax.Array) -> np.ndarray:
    """Returns a gradient on the host as a 64-bit array."""
    array = np.asarray(gradient)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def make_zero_gradients(variables: Pytree) -> Pytree:
    """Returns the zeros that a recorder holds before it has recorded any gradients."""
    return jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), _recording_dtype(x)), variables)


def _recording_dtype(x: jax.Array) -> np.dtype[np.generic]:
    """Returns the dtype in which gradients of a variable are recorded."""
    return jnp.promote_types(x.dtype, jnp.float32) if has_gradient(x) else np.dtype(np.float32)
