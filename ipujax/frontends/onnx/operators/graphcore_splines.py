"""PopART's operators of convolutions with kernels of B-splines (Fey et al., 2018)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array


@operator("ai.graphcore.SplineBasis")
def spline_basis(
    pseudo: Array, kernel_size: Array, is_open_spline: Array, degree: int = 1
) -> tuple[Array, Array]:
    """The B-splines that are not zero at places, and the weights of a kernel that they belong to.

    Args:
      pseudo: places [edges, dimensions], from 0 to 1.
      kernel_size: weights along each dimension.
      is_open_spline: whether the splines of a dimension end at 0 and 1; else, they go round.
      degree: of the splines, from 0 to 3.

    Returns:
      Products of splines [edges, (degree + 1) ** dimensions], and indices of weights of that shape.
    """
    if not 0 <= degree <= 3:
        raise check.refuse(
            f"degree = {degree} is not valid: must be between 0 and 3", "give one of these"
        )
    sizes, is_open = jnp.asarray(kernel_size), jnp.asarray(is_open_spline).astype(jnp.int32)
    places = jnp.asarray(pseudo, jnp.float32) * (sizes - degree * is_open)
    whole = jnp.floor(places)
    splines = _splines(places - whole, degree)  # [degree + 1, edges, dimensions]
    knots = whole.astype(sizes.dtype) + jnp.arange(degree + 1).reshape(-1, 1, 1)
    weights = knots % sizes * (jnp.cumprod(sizes) // sizes)
    count = sizes.size
    # Which spline of each dimension goes into a product; that of the first one changes fastest.
    digits = np.indices((degree + 1,) * count).reshape(count, -1)[::-1].T
    chosen = digits, slice(None), np.arange(count)
    basis = jnp.prod(splines[chosen], 1).T
    return basis.astype(pseudo.dtype), jnp.sum(weights[chosen], 1).T.astype(sizes.dtype)


def _splines(share: Array, degree: int) -> Array:
    """Values of uniform B-splines at a share of the way between two knots, by their recursion."""
    splines = [jnp.ones_like(share)]
    for m in range(1, degree + 1):
        before = [0, *splines, 0]
        splines = [
            ((k + 1 - share) * before[k + 1] + (m - k + share) * before[k]) / m
            for k in range(m + 1)
        ]
    return jnp.stack(splines)


@operator("ai.graphcore.SplineWeighting")
def spline_weighting(x: Array, weight: Array, basis: Array, weight_index: Array) -> Array:
    """Products of rows with mixtures of matrices: [edges, outputs].

    Args:
      x: [edges, inputs].
      weight: matrices [kernel, inputs, outputs].
      basis: how much each of some matrices counts, [edges, splines].
      weight_index: which matrices these are, [edges, splines].
    """
    edges = jnp.arange(len(x))[:, None]
    shares = jnp.zeros((len(x), len(weight)), basis.dtype).at[edges, weight_index].add(basis)
    return jnp.einsum("ek,ei,kio->eo", shares, x, weight)
