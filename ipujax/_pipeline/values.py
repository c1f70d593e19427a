"""Checks of single arguments of a pipeline."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import PipelineError, PipelineTypeError
from lowering import jaxpr


def positive(given: Any, name: str) -> int:
    """An int of at least 1."""
    if jaxpr.is_tracer(given):
        raise PipelineTypeError(
            f"{name} is known at run time only ({given}); the schedule is built when compiling\n"
            "  fix:   give a Python int, as by ipu.compile(..., static_argnums=...)"
        )
    try:
        number = None if isinstance(given, (bool, np.bool_)) else operator.index(given)
    except TypeError:
        number = None
    if number is None:
        raise PipelineTypeError(f"{name} must be an int, not {given!r}")
    if number < 1:
        raise PipelineError(f"{name} must be at least 1, it is {number}")
    return number


def micro_batches(given: Any) -> int:
    """A gradient_accumulation_count."""
    if given is None or (
        isinstance(given, (int, np.integer)) and given == 0 and given is not False
    ):
        raise PipelineError(
            "gradient_accumulation_count must be specified, as at least 1: the number of "
            f"micro-batches of one weight update; it is {given}"
        )
    return positive(given, "gradient_accumulation_count")


def dtype_chooser(given: Any, name: str, kind: Any) -> Callable[[Any], Any]:
    """A function from an aval to the dtype of its accumulator.

    Args:
      given: None for its own, a dtype, or a function from shape and dtype to one.
      name: of the argument.
      kind: what the dtype must be, such as `jnp.floating`.
    """
    if given is None:
        return lambda variable: variable.dtype
    known = _as_dtype(given, kind)
    if known is not None:
        return lambda variable: known
    if not callable(given) or isinstance(given, type):
        raise _no_dtype(given, name, kind)

    def choose(variable: Any) -> Any:
        chosen = _as_dtype(given(variable), kind)
        if chosen is None:
            raise _no_dtype(given(variable), name, kind)
        return chosen

    return choose


def _as_dtype(given: Any, kind: Any) -> Any:
    # NumPy takes None for float64, and any class for `object`.
    if given is None:
        return None
    try:
        dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(given))
    except TypeError:
        return None
    return dtype if jnp.issubdtype(dtype, kind) else None


def _no_dtype(given: Any, name: str, kind: Any) -> PipelineTypeError:
    return PipelineTypeError(
        f"{name} must be None, a {kind.__name__} dtype, or a function from a variable to one, not "
        f"{given!r}"
    )


def mask(given: Any) -> tuple[bool, ...] | None:
    """An outfeed_mask; an empty one is none."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(entry, (bool, np.bool_)) for entry in given
    ):
        raise PipelineTypeError(f"outfeed_mask must be a list of booleans, not {given!r}")
    return tuple(map(bool, given)) or None


def optional(given: Any, kind: type, name: str) -> Any:
    """An instance of a class, or None."""
    if given is not None and not isinstance(given, kind):
        raise PipelineTypeError(f"{name} must be an {kind.__name__}, not {given!r}")
    return given


def flag(given: Any, name: str) -> bool | None:
    """True, False or None."""
    if given is not None and not isinstance(given, (bool, np.bool_)):
        raise PipelineTypeError(f"{name} must be True, False or None, not {given!r}")
    return given if given is None else bool(given)


def sequence(given: Any, name: str) -> list[Any]:
    """A list or tuple; None is an empty one."""
    if given is not None and not isinstance(given, (list, tuple)):
        raise PipelineTypeError(f"{name} must be a list or tuple, not {given!r}")
    return list(given or ())


def function(given: Any, name: str) -> Any:
    """A function, or None."""
    if given is not None and not callable(given):
        raise PipelineTypeError(f"{name} must be a function, not {given!r}")
    return given
