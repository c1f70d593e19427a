"""The 64-bit values of functions that are traced with `enable_x64`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import Aval, ClosedJaxpr

_WIDE_BITS = 64


def has_wide_avals(avals: Iterable[Aval]) -> bool:
    """Returns whether an aval has numbers of 64 bits (complex: 128) that JAX would narrow."""
    if jax.dtypes.canonicalize_dtype(np.float64).itemsize * 8 == _WIDE_BITS:
        return False
    return any(map(_is_wide, {getattr(aval, "dtype", None) for aval in avals}))


def has_wide_values(closed: ClosedJaxpr) -> bool:
    """Returns whether a function has, at any depth, 64-bit values that JAX would narrow."""
    results = (var.aval for eqn in walk_equations(closed) for var in eqn.outvars)
    return has_wide_avals(closed.in_avals) or has_wide_avals(results)


def keep_wide_values(*, wide: bool) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which numbers keep 64 bits, if `wide`; else it changes nothing."""
    return jax.enable_x64(True) if wide else contextlib.nullcontext()


def _is_wide(dtype: Any) -> bool:
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iufc":
        return False
    return 8 * dtype.itemsize >= (2 * _WIDE_BITS if dtype.kind == "c" else _WIDE_BITS)
