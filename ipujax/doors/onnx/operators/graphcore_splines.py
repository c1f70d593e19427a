"""PopART's B-spline convolution operators (Fey et al., 2018)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array


@operator("ai.graphcore.SplineBasis")
def spline_basis(
    pseudo: Array, kernel_size: Array, is_open_spline: Array, degree: int = 1
) -> tuple[Array, Array]:
    """Returns the nonzero B-splines at positions, and the indices of their kernel weights.

    Args:
      pseudo: positions [edges, dimensions], from 0 to 1.
      kernel_size: the number of weights along each dimension.
      is_open_spline: whether the splines of a dimension end at 0 and 1; else they are periodic.
      degree: the degree of the splines, from 0 to 3.

    Returns:
      Products of splines [edges, (degree + 1) ** dimensions], and indices of weights of that shape.
    """
    if not 0 <= degree <= 3:
        raise check.value_error(
            f"degree = {degree} is not valid: must be between 0 and 3", "give one of these"
        )
    sizes, is_open = jnp.asarray(kernel_size), jnp.asarray(is_open_spline).astype(jnp.int32)
    positions = jnp.asarray(pseudo, jnp.float32) * (sizes - degree * is_open)
    first_knots = jnp.floor(positions)
    splines = _uniform_b_splines(positions - first_knots, degree)  # [degree + 1, edges, dimensions]
    knots = first_knots.astype(sizes.dtype) + jnp.arange(degree + 1).reshape(-1, 1, 1)
    weights = knots % sizes * (jnp.cumprod(sizes) // sizes)
    count = sizes.size
    # The spline of each dimension in each product; the first dimension's spline changes fastest.
    digits = np.indices((degree + 1,) * count).reshape(count, -1)[::-1].T
    chosen = digits, slice(None), np.arange(count)
    basis = jnp.prod(splines[chosen], 1).T
    return basis.astype(pseudo.dtype), jnp.sum(weights[chosen], 1).T.astype(sizes.dtype)


def _uniform_b_splines(fraction: Array, degree: int) -> Array:
    """Evaluates uniform B-splines at a fraction between two knots, by their recursion."""
    splines = [jnp.ones_like(fraction)]
    for m in range(1, degree + 1):
        lower_splines = [0, *splines, 0]
        splines = [
            ((k + 1 - fraction) * lower_splines[k + 1] + (m - k + fraction) * lower_splines[k]) / m
            for k in range(m + 1)
        ]
    return jnp.stack(splines)


@operator("ai.graphcore.SplineWeighting")
def spline_weighting(x: Array, weight: Array, basis: Array, weight_index: Array) -> Array:
    """Multiplies rows by mixtures of matrices: [edges, outputs].

    Args:
      x: [edges, inputs].
      weight: matrices [kernel, inputs, outputs].
      basis: the weights of some of the matrices, [edges, splines].
      weight_index: the indices of these matrices, [edges, splines].
    """
    edges = jnp.arange(len(x))[:, None]
    mixture_weights = (
        jnp.zeros((len(x), len(weight)), basis.dtype).at[edges, weight_index].add(basis)
    )
    return jnp.einsum("ek,ei,kio->eo", mixture_weights, x, weight)
