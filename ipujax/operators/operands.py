"""What the operators share: scopes, and arguments checked while tracing."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import ConfigTypeError, OperatorError
from lowering import jaxpr


def scope(name: str | None) -> contextlib.AbstractContextManager[Any]:
    """The named scope of an operator's optional name."""
    if name is not None and not isinstance(name, str):
        raise refuse_type(f"the name of an operator is {name!r}", "give a string, or None")
    return jax.named_scope(name) if name else contextlib.nullcontext()


def refuse(what: str, fix: str) -> OperatorError:
    """The error for an impossible operand of the call that is being traced."""
    return OperatorError(what, where=jaxpr.current_user_line(), fix=fix)


def refuse_type(what: str, fix: str) -> ConfigTypeError:
    """The error for an argument of the wrong type in the call that is being traced."""
    where = jaxpr.current_user_line()
    lines = [what, *([f"  where: {where}"] if where else []), f"  fix:   {fix}"]
    return ConfigTypeError("\n".join(lines))


def whole_number(value: Any, what: str) -> int:
    """`value` if it is an integer known while tracing; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise refuse_type(
            f"{what} is {value!r}, of type {type(value).__name__}",
            "give a Python int; it must be known when the function is traced",
        )
    return int(value)


def flag(value: Any, what: str) -> bool:
    """`value` if it is a bool known while tracing."""
    if not isinstance(value, (bool, np.bool_)):
        raise refuse_type(f"{what} is {value!r}, but must be a bool", "give True or False")
    return bool(value)


def array(x: Any, what: str, dtype: Any = None) -> jax.Array:
    """An operand as an array, of the dtype if one is given."""
    try:
        return jnp.asarray(x, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse_type(
            f"{what} cannot be an array: {error}", "give an array, a number, or a list of numbers"
        ) from None


def check_arrays(args: Any, what: str) -> None:
    """Refuses what is no array or number in the arguments (any pytree) of a user's function."""
    for leaf in jax.tree.leaves(args):
        try:
            jax.typeof(leaf)
        except TypeError:
            raise refuse_type(
                f"{what} was given {leaf!r}, of type {type(leaf).__name__}",
                "give arrays and numbers only; bind anything else with functools.partial",
            ) from None


def floats(x: Any, what: str) -> jax.Array:
    """An operand that must hold floats, as an array."""
    values = array(x, what)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise refuse(
            f"{what} is {values.dtype}, but must be floats", "cast it to jnp.float32 first"
        )
    return values


def known(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of an operand, if they are known while tracing."""
    return None if any(map(jaxpr.is_tracer, jax.tree.leaves(x))) else np.asarray(x)
