"""Values of 64 bits in functions that are traced where JAX would take 32, as `enable_x64` makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from lowering.equations import walk
from lowering.jaxpr import Aval, ClosedJaxpr

_WIDE_BITS = 64


def any_wide(avals: Iterable[Aval]) -> bool:
    """Whether there are numbers of 64 bits, or complex ones of 128, that JAX would narrow now."""
    if jax.dtypes.canonicalize_dtype(np.float64).itemsize * 8 == _WIDE_BITS:
        return False
    return any(map(_is_wide, {getattr(aval, "dtype", None) for aval in avals}))


def has_wide_values(closed: ClosedJaxpr) -> bool:
    """The same of all values of a function, at any depth."""
    results = (var.aval for eqn in walk(closed) for var in eqn.outvars)
    return any_wide(closed.in_avals) or any_wide(results)


def keep_wide_values(*, wide: bool) -> contextlib.AbstractContextManager[Any]:
    """A context in which numbers of 64 bits stay such, if `wide`; else it changes nothing."""
    return jax.enable_x64(True) if wide else contextlib.nullcontext()


def _is_wide(dtype: Any) -> bool:
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iufc":
        return False
    return 8 * dtype.itemsize >= (2 * _WIDE_BITS if dtype.kind == "c" else _WIDE_BITS)
