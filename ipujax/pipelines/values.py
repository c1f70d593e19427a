"""Checks of single arguments of a pipeline."""

from __future__ import annotations

import operator
from typing import Any

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
