"""What of JAX's configuration programs are compiled and run under."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp

from lowering import jaxpr


def read_compile_context() -> Hashable:
    """Equal where the same function, for the same arguments, is compiled to the same program."""
    return jaxpr.trace_context(), jaxpr.number_checks()


def convert_argument(leaf: Any) -> Any:
    """An argument as this thread takes it, before a program with wider ones does."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
