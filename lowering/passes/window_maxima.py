"""The rewriting of maxima of windows as maxima of slices, which a CPU computes faster."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import ir
from lowering.jaxprs import (
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    shape_of,
)
from lowering.passes.rewrite_kernels import rewrite_equations_of_kernels

_MOST_SLICES = 32  # of one dimension; each takes time to compile
_MOST_SLICES_AT_ONCE = 9  # above, an array between the dimensions takes less time


def rewrite_window_maxima(program: ir.Program) -> ir.Program:
    """Rewrites `reduce_window_max` as the maximum of one slice for each position in a window.

    Before: the maxima of windows are single equations, as the machine model reads them.
    After:  the numbers are the same. XLA's loops on CPUs go through each window element by element,
            which takes 2 to 15 times as long; maxima of slices are vectorized.
    """
    return rewrite_equations_of_kernels(
        program, EquationFinder(_is_window_maximum), _replace_by_slices
    )


def _is_window_maximum(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a maximum of windows of few elements in each dimension."""
    if eqn.primitive is not lax.reduce_window_max_p:
        return False
    aval: Any = eqn.invars[0].aval
    is_number = any(jnp.issubdtype(aval.dtype, kind) for kind in (np.floating, np.integer))
    is_spread = any(spread > 1 for spread in eqn.params["base_dilation"])
    has_elements = math.prod(shape_of(eqn.outvars[0].aval)) > 0
    return (
        is_number
        and not is_spread
        and has_elements
        and max(eqn.params["window_dimensions"], default=1) <= _MOST_SLICES
    )


def _replace_by_slices(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
    windows, sizes = eqn.params["window_dimensions"], shape_of(eqn.outvars[0].aval)
    strides, dilations = eqn.params["window_strides"], eqn.params["window_dilation"]
    axes = [axis for axis, steps in enumerate(zip(windows, strides, strict=True)) if max(steps) > 1]
    is_small = math.prod(windows) <= _MOST_SLICES_AT_ONCE
    groups = [axes] if is_small else [[axis] for axis in axes]

    def take_maxima(x: Any) -> Any:
        edges = [(*pair, 0) for pair in eqn.params["padding"]]
        if any(map(any, edges)):
            x = lax.pad(x, _lowest_value(x.dtype), edges)
        for group in groups:
            x = _maximum_of_slices(x, group, windows, sizes, strides, dilations)
        return x

    rewriter.replace_by_function(eqn, take_maxima)


def _maximum_of_slices(
    x: Any,
    group: Sequence[int],
    windows: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Any:
    """Returns the maxima of windows along some dimensions, and the others as they are."""

    def slice_at(positions: Iterable[int]) -> Any:
        starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        for axis, position in zip(group, positions, strict=True):
            starts[axis] = position * dilations[axis]
            limits[axis] = starts[axis] + (sizes[axis] - 1) * strides[axis] + 1
            steps[axis] = strides[axis]
        return lax.slice(x, starts, limits, steps)

    positions = itertools.product(*(range(windows[axis]) for axis in group))
    return functools.reduce(lax.max, map(slice_at, positions))


def _lowest_value(dtype: Any) -> Any:
    lowest = -np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).min
    return np.asarray(lowest, dtype)
