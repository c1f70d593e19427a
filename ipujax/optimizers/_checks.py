"""What the optimizers take: transformations to wrap, and dtypes to accumulate in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax.checks.arguments import Checks
from ipujax.errors import IPUError, OptimizerError, OptimizerTypeError
from lowering import jaxpr

check = Checks(OptimizerTypeError, OptimizerError)


def checked_transformation(opt: Any, wrapper: str) -> Any:
    """What an optimizer wraps: an optax transformation, or anything that has its two functions."""
    functions = (getattr(opt, name, None) for name in ("init", "update"))
    if not isinstance(opt, type) and all(map(callable, functions)):
        return opt
    called = " it is a function, which may still have to be called:" if callable(opt) else ""
    raise check.refuse_type(
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
    fix = f"give None, a dtype that is jnp.{kind.__name__}, or a function from a variable to one"
    return error(f"{name} is {given!r}", where=jaxpr.current_user_line(), fix=fix)
