"""What the optimizers check in their arguments, and how they refuse them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax.errors import IPUError, OptimizerError, OptimizerTypeError
from lowering import jaxpr


def refuse(what: str, fix: str) -> OptimizerError:
    """The error for an impossible value, with the user's line."""
    return OptimizerError(message(what, fix))


def refuse_type(what: str, fix: str) -> OptimizerTypeError:
    """The error for an argument of the wrong type, with the user's line."""
    return OptimizerTypeError(message(what, fix))


def message(what: str, fix: str) -> str:
    """The text of an error, with the user's line."""
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


def dtype_chooser(
    given: Any, name: str, kind: Any, error: type[IPUError]
) -> Callable[[Any], np.dtype[Any]]:
    """A function from a variable, or its aval, to the dtype of its accumulator.

    Args:
      given: None for its own, a dtype, or a function from a variable to one.
      name: of the argument.
      kind: what the dtype must be, such as `jnp.floating`.
      error: the class to raise, at once or by the function, for anything else.
    """
    if given is None:
        return jnp.result_type
    known = _as_dtype(given, kind)
    if known is not None:
        return lambda _: known
    if not callable(given) or isinstance(given, type):
        raise _no_dtype(given, name, kind, error)

    def choose(variable: Any) -> np.dtype[Any]:
        chosen = _as_dtype(given(variable), kind)
        if chosen is None:
            raise _no_dtype(given(variable), name, kind, error)
        return chosen

    return choose


def _as_dtype(given: Any, kind: Any) -> np.dtype[Any] | None:
    # NumPy takes None for float64, and any class for `object`.
    if given is None:
        return None
    try:
        dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(given))
    except TypeError:
        return None
    return dtype if jnp.issubdtype(dtype, kind) else None


def _no_dtype(given: Any, name: str, kind: Any, error: type[IPUError]) -> IPUError:
    return error(
        message(
            f"{name} is {given!r}",
            f"give None, a dtype that is jnp.{kind.__name__}, or a function from a variable to one",
        )
    )


def optional_bool(value: Any, what: str) -> bool | None:
    """True, False or None."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return value if value is None else bool(value)
    raise refuse_type(f"{what} is {value!r}", "give True, False or None")
