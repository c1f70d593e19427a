"""What the operators share: their arguments, checked while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax._collectives import refuse_type
from ipujax.errors import OperatorError
from lowering import jaxpr


def refuse(what: str, fix: str) -> OperatorError:
    """The error for an impossible operand of the call that is being traced."""
    return OperatorError(what, where=jaxpr.current_user_line(), fix=fix)


def flag(value: Any, what: str) -> bool:
    """`value` if it is a bool known while tracing."""
    if not isinstance(value, (bool, np.bool_)):
        raise refuse_type(f"{what} is {value!r}, but must be a bool", "give True or False")
    return bool(value)


def floats(x: Any, what: str) -> jax.Array:
    """An operand that must hold floats, as an array."""
    array = jnp.asarray(x)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise refuse(f"{what} is {array.dtype}, but must be floats", "cast it to jnp.float32 first")
    return array


def known(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of an operand, if they are known while tracing."""
    return None if any(map(jaxpr.is_tracer, jax.tree.leaves(x))) else np.asarray(x)
