"""What the optimizers take: transformations to wrap, and dtypes to accumulate in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ipujax.checks.arguments import Checks, dtype_of
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
    dtype: Any, name: str, kind: Any, error: type[IPUError]
) -> Callable[[Any], np.dtype[Any]]:
    """A function from a variable, or its aval, to the dtype of its accumulator.

    Args:
      dtype: None for its own, a dtype, or a function from a variable to one.
      name: of the argument.
      kind: what the dtype must be, such as `jnp.floating`.
      error: the class to raise, at once or by the function, for anything else.
    """

    def checked(value: Any) -> np.dtype[Any]:
        dtype = dtype_of(value)  # `object` for any class
        if dtype is None or not jnp.issubdtype(dtype, kind):
            fix = f"a dtype that is jnp.{kind.__name__}, or a function from a variable to one"
            where = jaxpr.current_user_line()
            raise error(f"{name} is {value!r}", where=where, fix=f"give None, {fix}")
        return jax.dtypes.canonicalize_dtype(dtype)

    if dtype is None:
        return jnp.result_type
    if callable(dtype) and not isinstance(dtype, type):
        return lambda variable: checked(dtype(variable))
    chosen = checked(dtype)
    return lambda _: chosen
