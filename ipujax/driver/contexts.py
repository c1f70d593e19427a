"""The parts of JAX's configuration under which programs are compiled and run."""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp

from ipujax.ground import PyTree
from lowering import jaxpr


def read_compile_context() -> Hashable:
    """Returns a key of the JAX configuration that the compiled program depends on."""
    return jaxpr.jit_configuration_of_thread(), jaxpr.nan_and_inf_checks()


def convert_argument(leaf: object) -> PyTree:
    """Converts an argument to a JAX array under this thread's dtype settings."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
