"""PopART's operators of splines, against SciPy's splines and loops."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from scipy.interpolate import BSpline

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax.doors.onnx.operators.graphcore_splines import spline_basis, spline_weighting
from ipujax.errors import FrontendError

RANDOM = np.random.default_rng(0)
SIZES, IS_OPEN = np.array([5, 4], np.int32), np.array([1, 0], np.uint8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_bases_are_products_of_splines(degree: int) -> None:
    places = RANDOM.uniform(0, 1, (6, 2)).astype(np.float32)
    basis, indices = spline_basis(places, SIZES, IS_OPEN, degree)  # type: ignore
    assert basis.shape == indices.shape == (6, (degree + 1) ** 2)
    assert indices.dtype == np.int32
    spline: Any = BSpline.basis_element(np.arange(degree + 2), extrapolate=False)
    for edge, place in enumerate(places):
        along = place * (SIZES - degree * IS_OPEN)
        whole = along.astype(int)
        products = np.zeros(SIZES.prod())
        for ks in itertools.product(range(degree + 1), repeat=2):
            first, second = (whole + ks) % SIZES
            products[second * SIZES[0] + first] += np.prod(spline(along - whole + degree - ks))
        found = np.zeros(SIZES.prod())
        np.add.at(found, np.asarray(indices[edge]), np.asarray(basis[edge]))
        np.testing.assert_allclose(found, products, 1e-4, 1e-5)
    np.testing.assert_allclose(np.asarray(basis).sum(1), 1, 1e-5)


@pytest.mark.exhaustive
def test_bases_have_derivatives_by_places() -> None:
    places = jnp.asarray(RANDOM.uniform(0.02, 0.18, (5, 2)), jnp.float32)  # within one knot

    @jax.jit
    def total(places: Any) -> Any:
        basis, _ = spline_basis(places, SIZES, IS_OPEN, 3)  # type: ignore
        return jnp.sum(jnp.sin(basis * jnp.arange(16)))

    jax.test_util.check_grads(total, (places,), 1, ["rev"], 2e-2, 2e-2, 1e-3)


def test_other_degrees_are_refused() -> None:
    with pytest.raises(FrontendError, match="degree = 4 is not valid"):
        spline_basis(np.zeros((2, 2)), SIZES, IS_OPEN, 4)  # type: ignore


@pytest.mark.exhaustive
def test_rows_are_multiplied_by_mixtures_of_matrices() -> None:
    x, weight, basis = (
        RANDOM.normal(size=shape).astype(np.float32) for shape in ((5, 3), (7, 3, 2), (5, 4))
    )
    indices = RANDOM.integers(0, 7, (5, 4)).astype(np.int32)
    expected = np.zeros((5, 2))
    for edge, spline in np.ndindex(5, 4):
        expected[edge] += basis[edge, spline] * x[edge] @ weight[indices[edge, spline]]
    found = spline_weighting(x, weight, basis, indices)  # type: ignore
    np.testing.assert_allclose(np.asarray(found), expected, 1e-5, 1e-5)
