"""PyTorch matrix decompositions and linear solvers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.torch.operators.table import operator


def _zeros_reporting_success(x: jax.Array) -> jax.Array:
    """Returns the zeros that report a successful decomposition."""
    return jnp.zeros(x.shape[:-2], jnp.int32)


def _transpose_matrices(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -2, -1)


def _adjoint(x: jax.Array) -> jax.Array:
    return jnp.conj(_transpose_matrices(x))


@operator("aten.cholesky.default", "aten.linalg_cholesky.default")
def cholesky(a: jax.Array, upper: bool = False) -> jax.Array:
    return jnp.linalg.cholesky(a, upper=upper)


@operator("aten.linalg_cholesky_ex.default")
def cholesky_ex(a: jax.Array, upper: bool = False, check_errors: bool = False) -> Operand:
    return cholesky(a, upper), _zeros_reporting_success(a)


@operator("aten.cholesky_solve.default")
def cholesky_solve(b: jax.Array, factor: jax.Array, upper: bool = False) -> jax.Array:
    lower = _adjoint(factor) if upper else factor
    return _solve_triangular(_adjoint(lower), _solve_triangular(lower, b, upper=False), upper=True)


@operator("aten.cholesky_inverse.default")
def cholesky_inverse(factor: jax.Array, upper: bool = False) -> jax.Array:
    lower = _adjoint(factor) if upper else factor
    inverse = _solve_triangular(lower, jnp.eye(lower.shape[-1], dtype=lower.dtype), upper=False)
    return _adjoint(inverse) @ inverse


def _solve_triangular(
    a: jax.Array, b: jax.Array, *, upper: bool, left_side: bool = True, unit: bool = False
) -> jax.Array:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return lax.linalg.triangular_solve(
        a, b, left_side=left_side, lower=not upper, unit_diagonal=unit
    )


@operator("aten.linalg_solve_triangular.default")
def solve_triangular(
    a: jax.Array, b: jax.Array, upper: bool, left: bool = True, unitriangular: bool = False
) -> jax.Array:
    return _solve_triangular(a, b, upper=upper, left_side=left, unit=unitriangular)


@operator("aten.triangular_solve.default")
def triangular_solve(
    b: jax.Array, a: jax.Array, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    operand, is_upper = (_transpose_matrices(a), not upper) if transpose else (a, upper)
    solution = _solve_triangular(operand, b, upper=is_upper, unit=unitriangular)
    return solution, jnp.broadcast_to(a, (*batch, *a.shape[-2:]))


@operator("aten.linalg_inv.default", "aten.inverse.default")
def inverse(a: jax.Array) -> jax.Array:
    return jnp.linalg.inv(a)


@operator("aten.linalg_inv_ex.default")
def inverse_ex(a: jax.Array, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    return jnp.linalg.inv(a), _zeros_reporting_success(a)


@operator("aten.linalg_solve.default")
def solve(a: jax.Array, b: jax.Array, left: bool = True) -> jax.Array:
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        return jnp.linalg.solve(a, b[..., None])[..., 0]
    if left:
        return jnp.linalg.solve(a, b)
    return _transpose_matrices(jnp.linalg.solve(_transpose_matrices(a), _transpose_matrices(b)))


@operator("aten._linalg_solve_ex.default")
def solve_with_factors(
    a: jax.Array, b: jax.Array, left: bool = True, check_errors: bool = False
) -> Operand:
    return (solve(a, b, left), *lu_factor_ex(a))


@operator("aten.linalg_qr.default")
def qr(a: jax.Array, mode: str = "reduced") -> tuple[jax.Array, jax.Array]:
    if mode == "r":
        return jnp.zeros(0, a.dtype), jnp.linalg.qr(a, mode="r")
    q, r = jnp.linalg.qr(a, mode=mode)
    return q, r


@operator("aten.linalg_householder_product.default", "aten.orgqr.default")
def householder_product(a: jax.Array, tau: jax.Array) -> jax.Array:
    m, n = a.shape[-2:]
    product = jnp.broadcast_to(jnp.eye(m, dtype=a.dtype), (*a.shape[:-2], m, m))
    for i in reversed(range(tau.shape[-1])):
        mirror = (
            jnp.zeros_like(a[..., i]).at[..., i].set(1).at[..., i + 1 :].set(a[..., i + 1 :, i])
        )
        row = jnp.conj(mirror)[..., None, :] @ product
        product = product - tau[..., i, None, None] * mirror[..., :, None] * row
    return product[..., :n]


@operator("aten.ormqr.default")
def ormqr(
    a: jax.Array, tau: jax.Array, b: jax.Array, left: bool = True, transpose: bool = False
) -> jax.Array:
    # All columns of q are needed, and a has only some.
    m = a.shape[-2]
    square = jnp.concatenate([a, jnp.zeros((*a.shape[:-1], m - a.shape[-1]), a.dtype)], -1)
    q = householder_product(square, tau)
    q = _adjoint(q) if transpose else q
    return q @ b if left else b @ q


@operator("aten.linalg_svd.default")
def svd(a: jax.Array, full_matrices: bool = True, driver: str | None = None) -> Operand:
    return jnp.linalg.svd(a, full_matrices)


@operator("aten._linalg_svd.default")
def svd_some(
    a: jax.Array, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> Operand:
    if compute_uv:
        return jnp.linalg.svd(a, full_matrices)
    empty = jnp.zeros(0, a.dtype)
    return empty, svdvals(a), empty


@operator("aten.linalg_svdvals.default")
def svdvals(a: jax.Array, driver: str | None = None) -> jax.Array:
    return jnp.linalg.svd(a, compute_uv=False)


@operator("aten.linalg_eigh.default")
def eigh(a: jax.Array, uplo: str = "L") -> tuple[jax.Array, jax.Array]:
    half = jnp.tril(a) if uplo.upper() == "L" else _adjoint(jnp.triu(a))
    full_matrix = half + _adjoint(jnp.tril(half, -1))
    symmetric = (a + _adjoint(a)) / 2  # the gradient is with respect to both triangles
    full_matrix = lax.stop_gradient(full_matrix - symmetric) + symmetric
    values, vectors = jnp.linalg.eigh(full_matrix, symmetrize_input=False)
    return values, vectors


@operator("aten._linalg_eigh.default")
def eigh_some(a: jax.Array, uplo: str = "L", compute_v: bool = True) -> Operand:
    values, vectors = eigh(a, uplo)
    return values, vectors if compute_v else jnp.zeros(0, a.dtype)


@operator("aten.linalg_eig.default")
def eig(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    if a.size == 0:
        dtype = jnp.result_type(a.dtype, jnp.complex64)
        return jnp.zeros(a.shape[:-1], dtype), jnp.zeros(a.shape, dtype)
    # PyTorch scales eigenvectors as JAX does, and refuses losses that depend on their phases.
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)
    return values, vectors


@operator("aten.linalg_det.default", "aten.det.default")
def det(a: jax.Array) -> jax.Array:
    return jnp.linalg.det(a) if a.shape[-1] else jnp.ones(a.shape[:-2], a.dtype)


@operator("aten._linalg_det.default")
def det_with_factors(a: jax.Array) -> Operand:
    return (det(a), *lu_factor(a))


@operator("aten._linalg_slogdet.default")
def slogdet_with_factors(a: jax.Array) -> Operand:
    return (*jnp.linalg.slogdet(a), *lu_factor(a))


@operator("aten.linalg_lu_factor.default")
def lu_factor(a: jax.Array, pivot: bool = True) -> tuple[jax.Array, jax.Array]:
    _check_pivoting(pivot)
    factors, pivots, _ = lax.linalg.lu(a)
    return factors, pivots + 1


@operator("aten.linalg_lu_factor_ex.default", "aten._lu_with_info.default")
def lu_factor_ex(a: jax.Array, pivot: bool = True, check_errors: bool = False) -> Operand:
    return (*lu_factor(a, pivot), _zeros_reporting_success(a))


@operator("aten.linalg_lu.default")
def lu(a: jax.Array, pivot: bool = True) -> tuple[jax.Array, jax.Array, jax.Array]:
    return lu_unpack(*lu_factor(a, pivot))


def _check_pivoting(pivot: bool) -> None:
    if not pivot:
        raise check.value_error(
            "an LU decomposition without pivoting is missing: JAX has none",
            "leave pivot=False out",
        )


@operator("aten.lu_unpack.default")
def lu_unpack(
    factors: jax.Array, pivots: jax.Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array]:
    m, n = factors.shape[-2:]
    empty = jnp.zeros(0, factors.dtype)
    p, lower, u = empty, empty, empty
    if unpack_pivots:
        order = lax.linalg.lu_pivots_to_permutation(pivots - 1, m)
        p = _transpose_matrices(jax.nn.one_hot(order, m, dtype=factors.dtype))
    if unpack_data:
        k = min(m, n)
        lower = jnp.tril(factors[..., :, :k], -1) + jnp.eye(m, k, dtype=factors.dtype)
        u = jnp.triu(factors[..., :k, :])
    return p, lower, u


@operator("aten.linalg_lu_solve.default")
def lu_solve(
    factors: jax.Array, pivots: jax.Array, b: jax.Array, left: bool = True, adjoint: bool = False
) -> jax.Array:
    if not left:  # X a = b is a^H X^H = b^H
        return _adjoint(lu_solve(factors, pivots, _adjoint(b), True, not adjoint))
    p, lower, u = lu_unpack(factors, pivots)
    if adjoint:
        y = _solve_triangular(_adjoint(u), b, upper=False)
        return p @ _solve_triangular(_adjoint(lower), y, upper=True, unit=True)
    y = _solve_triangular(lower, _transpose_matrices(p) @ b, upper=False, unit=True)
    return _solve_triangular(u, y, upper=True)


@operator("aten.linalg_pinv.atol_rtol_tensor", "aten.linalg_pinv.atol_rtol_float")
def pinv(
    a: jax.Array, atol: Operand = None, rtol: Operand = None, hermitian: bool = False
) -> jax.Array:
    if a.size == 0:
        return jnp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if not hermitian:
        limit = _relative_singular_limit(a, atol, rtol, lax.stop_gradient(svdvals(a)).max(-1))
        return jnp.linalg.pinv(a, limit)
    fixed = lax.stop_gradient(a)
    values, vectors = eigh(fixed)
    sizes = lax.abs(values)
    largest = sizes.max(-1)
    is_used = sizes > (_relative_singular_limit(a, atol, rtol, largest) * largest)[..., None]
    inverses = jnp.where(is_used, 1 / jnp.where(is_used, values, 1), 0)
    inverse = (vectors * inverses[..., None, :]) @ _adjoint(vectors)
    # The derivative is that of a general matrix (Golub and Pereyra 1973).
    change, adjoint, eye = a - fixed, _adjoint(inverse), jnp.eye(a.shape[-1], dtype=a.dtype)
    outside = inverse @ adjoint @ _adjoint(change) @ (eye - fixed @ inverse)
    outside += (eye - inverse @ fixed) @ _adjoint(change) @ adjoint @ inverse
    return inverse - inverse @ change @ inverse + outside


def _relative_singular_limit(a: jax.Array, atol: Any, rtol: Any, largest: jax.Array) -> jax.Array:
    """Returns the limit that used singular values exceed, relative to the largest."""
    if rtol is None:
        default = max(a.shape[-2:]) * jnp.finfo(a.dtype).eps
        rtol = default if atol is None else jnp.where(jnp.asarray(atol) > 0, 0.0, default)
    atol = 0.0 if atol is None else atol
    return jnp.maximum(rtol, atol / jnp.where(largest == 0, 1, largest))


@operator("aten.linalg_matrix_exp.default", "aten.matrix_exp.default")
def matrix_exp(a: jax.Array) -> jax.Array:
    if a.shape[-1] == 0:
        return a
    return jax.scipy.linalg.expm(a)


@operator("aten.linalg_tensorinv.default")
def tensorinv(a: jax.Array, ind: int = 2) -> jax.Array:
    return jnp.linalg.tensorinv(a, ind)
