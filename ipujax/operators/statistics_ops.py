"""Histograms, and evenly spaced levels for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check, values_if_known


@check.guard
def fixed_width_bins(inputs: PyTree, n_bins: int) -> jax.Array:
    """Returns evenly spaced levels from the least to the greatest value (seed 001, 18.14.17).

    Args:
      inputs: floats, `[n]`, at least one.
      n_bins: how many levels.

    Returns:
      `[n_bins]`, of the dtype of the inputs, in ascending order.

    Raises:
      OperatorError: (a `ValueError`) for inputs that are no floats, not of rank 1, or empty, and
        for less than one level.
      ConfigTypeError: (a `TypeError`) if `n_bins` is no integer.
    """
    values = _require_vector(inputs, "the inputs of fixed_width_bins")
    count = check.require_integer(n_bins, "the n_bins of fixed_width_bins")
    if count < 1 or not len(values):
        raise check.value_error(
            f"fixed_width_bins got {len(values)} values and n_bins {count}", "give at least one"
        )
    wide = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return jnp.linspace(jnp.min(wide), jnp.max(wide), count).astype(values.dtype)


@check.guard
def histogram(inputs: PyTree, levels: ArrayLike, absolute_of_input: bool = False) -> jax.Array:
    """Counts values between levels (seed 001, 18.14.17; fact `statistics.hist_bins`).

    Bin i has the values x with `levels[i - 1] <= x < levels[i]`; the first one those below all
    levels, the last one the others. NaNs count as below.

    Args:
      inputs: floats, `[n]`.
      levels: `[bins - 1]`, in ascending order, of the same dtype.
      absolute_of_input: count magnitudes.

    Returns:
      `[bins]`, float32.

    Raises:
      OperatorError: (a `ValueError`) for inputs or levels that are no floats, not of rank 1 or of
        different dtypes, for no levels, and for levels that are known while tracing and do not
        ascend. Counts by levels that do not at run time mean nothing.
      ConfigTypeError: (a `TypeError`) if `absolute_of_input` is no bool.
    """
    return _count_values(*_check_histogram_operands(inputs, levels, absolute_of_input, "histogram"))


@check.guard
def histogram_update(
    hist: ArrayLike, inputs: PyTree, levels: ArrayLike, absolute_of_input: bool = False
) -> jax.Array:
    """Adds to a histogram (seed 001, 18.14.17; fact `statistics.hist_errors`).

    Args:
      hist: `[bins]`, float32, as `histogram` returns it.
      inputs: see `histogram`.
      levels: see `histogram`.
      absolute_of_input: see `histogram`.

    Returns:
      `[bins]`, float32.

    Raises:
      OperatorError: (a `ValueError`) as in `histogram`, and for a `hist` that is not float32, or
        that does not have one bin more than there are levels.
      ConfigTypeError: (a `TypeError`) if `absolute_of_input` is no bool.
    """
    old_counts = check.require_array(hist, "the hist of histogram_update")
    values, edges = _check_histogram_operands(inputs, levels, absolute_of_input, "histogram_update")
    if old_counts.dtype != jnp.float32 or old_counts.shape != (len(edges) + 1,):
        raise check.value_error(
            f"the hist of histogram_update is {old_counts.dtype}{list(old_counts.shape)}, but "
            f"there are {len(edges)} levels",
            f"give it as float32[{len(edges) + 1}]: one bin more than levels",
        )
    return old_counts + _count_values(values, edges)


def _count_values(values: jax.Array, levels: jax.Array) -> jax.Array:
    # One level after the other: memory is that of the values, not values times levels.
    def count_at_least(level: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(values >= level, 1, 0), dtype=jnp.int32)

    from_here = lax.map(count_at_least, levels)
    all_values = jnp.full(1, len(values), jnp.int32)
    below = jnp.concatenate([all_values, from_here])
    return (below - jnp.append(from_here, 0)).astype(jnp.float32)


def _check_histogram_operands(
    inputs: PyTree, levels: ArrayLike, absolute: object, function: str
) -> tuple[jax.Array, jax.Array]:
    values, argument = (
        _require_vector(inputs, f"the inputs of {function}"),
        f"the levels of {function}",
    )
    # A list takes the type of what it is compared with.
    typed = None if hasattr(levels, "dtype") else values.dtype
    edges = _require_vector(check.require_array(levels, argument, typed), argument)
    if edges.dtype != values.dtype:
        raise check.value_error(
            f"{function} got inputs of {values.dtype} and levels of {edges.dtype}",
            "cast the levels: levels.astype(inputs.dtype)",
        )
    if not len(edges):
        raise check.value_error(f"{function} got no levels", "give at least one")
    numbers = values_if_known(levels)
    if numbers is not None and not np.all(numbers[:-1] <= numbers[1:]):
        raise check.value_error(f"{argument} do not ascend", "sort them; none may be a NaN")
    is_absolute = check.require_flag(absolute, f"the absolute_of_input of {function}")
    return jnp.abs(values) if is_absolute else values, edges


def _require_vector(x: ArrayLike, argument: str) -> jax.Array:
    values = check.require_floats(x, argument)
    if values.ndim != 1:
        raise check.value_error(
            f"{argument} have shape {list(values.shape)}", "give an array of rank 1"
        )
    return values
