"""What the optimizers check in their arguments, and how they refuse them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from ipujax.errors import OptimizerError, OptimizerTypeError
from lowering import jaxpr


def refuse(what: str, fix: str) -> OptimizerError:
    """The error for an impossible value, with the user's line."""
    return OptimizerError(_text(what, fix))


def refuse_type(what: str, fix: str) -> OptimizerTypeError:
    """The error for an argument of the wrong type, with the user's line."""
    return OptimizerTypeError(_text(what, fix))


def _text(what: str, fix: str) -> str:
    where = jaxpr.current_user_line()
    return "\n".join([what, *([f"  where: {where}"] if where else []), f"  fix:   {fix}"])


def checked_transformation(opt: Any, wrapper: str) -> Any:
    """What an optimizer wraps: an optax transformation, or anything that has its two functions."""
    functions = (getattr(opt, name, None) for name in ("init", "update"))
    if not isinstance(opt, type) and all(map(callable, functions)):
        return opt
    called = " it is a function, which may still have to be called:" if callable(opt) else ""
    raise refuse_type(
        f"{wrapper} wraps an optax.GradientTransformation, not {opt!r}, of type "
        f"{type(opt).__name__}",
        f"give an optimizer of optax:{called} {wrapper}(optax.sgd(0.01), ...)",
    )


def takes_extra_args(opt: Any) -> bool:
    """Whether the transformation's update takes optax's extra keyword arguments."""
    if isinstance(opt, optax.GradientTransformation):
        return isinstance(opt, optax.GradientTransformationExtraArgs)
    try:
        parameters = inspect.signature(opt.update).parameters.values()
    except (TypeError, ValueError):  # builtins may hide their signature
        return False
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def mini_batch_count(count: Any, wrapper: str) -> int:
    """A number of mini-batches that is at least one."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise refuse_type(
            f"the num_mini_batches of {wrapper} is {count!r}, of type {type(count).__name__}",
            "give a Python int",
        )
    if count < 1:
        raise refuse(f"the num_mini_batches of {wrapper} is {count}", "give at least 1")
    return int(count)


def dtype_chooser(dtype: Any, what: str) -> Callable[[Any], np.dtype[Any]]:
    """A function from a variable to the dtype of its accumulator.

    Args:
      dtype: None for the variable's own, a dtype, or a function from a variable to one.
      what: names the argument.
    """
    if dtype is None:
        return lambda variable: jnp.asarray(variable).dtype
    known = _as_dtype(dtype)
    if known is not None:
        chosen = _accumulating(known, dtype, what)
        return lambda _: chosen
    if not callable(dtype):
        raise _refuse_dtype(dtype, what)
    return lambda variable: _accumulating(_as_dtype(dtype(variable)), dtype(variable), what)


def _as_dtype(given: Any) -> np.dtype[Any] | None:
    # NumPy takes None for float64, and any class for `object`.
    if given is None:
        return None
    try:
        return jnp.dtype(given)
    except TypeError:
        return None


def _accumulating(dtype: np.dtype[Any] | None, given: Any, what: str) -> np.dtype[Any]:
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        raise _refuse_dtype(given, what)
    return dtype


def _refuse_dtype(given: Any, what: str) -> OptimizerTypeError:
    return refuse_type(
        f"{what} is {given!r}, which is no floating-point dtype",
        "give None, a dtype such as jnp.float32, or a function from a variable to one",
    )


def optional_bool(value: Any, what: str) -> bool | None:
    """True, False or None."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return value if value is None else bool(value)
    raise refuse_type(f"{what} is {value!r}", "give True, False or None")
