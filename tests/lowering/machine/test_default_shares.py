"""What is left to a default: no public function spends much of its time in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import jax.scipy.special as jss
import pytest
from jax import lax

from lowering.machine import IPU2, Operation, Shape
from lowering.machine.primitives import RULES, cost_of_operation
from tests.lowering.machine.samples import kernel
from tests.lowering.machine.test_primitives_rules import PLANNED, PRIMITIVES

LEFT = {
    # A user's own function folds; its cost is in no parameter of the primitive.
    "reduce",
    "reduce_window",
    "select_and_scatter",
    # Attention for another maker's chips, which no other platform lowers.
    "cudnn_fusion",
    "dot_product_attention_bwd",
    "dot_product_attention_bwd_wrapper",
    "dot_product_attention_fp8_bwd",
    "dot_product_attention_fp8_bwd_wrapper",
    "dot_product_attention_fp8_fwd",
    "dot_product_attention_fp8_fwd_wrapper",
    "dot_product_attention_fwd",
    "dot_product_attention_fwd_wrapper",
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool", "complex64"])
def test_what_is_left_to_defaults(dtype: str) -> None:
    array = Shape((8, 8), dtype)
    names = set(PRIMITIVES.split()) - PLANNED
    operations = [Operation(name, (array,) * 3, (array,)) for name in sorted(names | RULES.keys())]
    found = {op.name for op in operations if op.name not in PLANNED}
    assert names <= found
    defaults = {
        op.name
        for op in operations
        if op.name not in PLANNED and cost_of_operation(op, IPU2).source == "default"
    }
    assert defaults == LEFT


X = jax.ShapeDtypeStruct((8, 8), jnp.float32)
Z = jax.ShapeDtypeStruct((8, 8), jnp.complex64)
N = jax.ShapeDtypeStruct((8, 8), jnp.int32)
H = jax.ShapeDtypeStruct((8, 8), jnp.float16)
V = jax.ShapeDtypeStruct((8,), jnp.float32)
COUNTS = jax.ShapeDtypeStruct((3,), jnp.int32)
KEY = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)

ELEMENTWISE: dict[str, tuple[Callable[..., Any], ...]] = {
    "running": (jnp.cumsum, jnp.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp),
    "gamma": (jss.gammaln, jss.digamma, jss.gamma, jss.factorial),
    "bessel": (jss.i0, jss.i0e, jss.i1, jss.i1e),
    "error": (jss.erf, jss.erfc, jss.erfinv, jss.ndtr, jss.ndtri),
    "others": (jss.expit, jss.log_ndtr, jss.spence, jnp.sinc, jnp.cbrt, jnp.nan_to_num),
}
PAIRS = (
    *(jss.gammainc, jss.gammaincc, lax.igamma_grad_a, lax.random_gamma_grad, jss.zeta, jss.beta),
    *(jss.betaln, jss.xlogy, lax.nextafter, lax.pow, jnp.hypot),
)
COMPLEX = (
    *(jnp.abs, jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.sinh),
    *(jnp.arcsin, jnp.arctanh, jnp.sign, jnp.square, jnp.reciprocal, jnp.conj, jnp.cumprod),
    *(jnp.prod, jnp.sum, jnp.angle, jnp.expm1, jnp.log1p, jnp.fft.fft, jnp.fft.ifft2),
    *(lambda z: z * z, lambda z: z / (z + 1), lambda z: z**3, lambda z: z**z, lambda z: z == 1),
)
LINALG = (
    *(jnp.linalg.cholesky, jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.eigh, jnp.linalg.eig),
    *(jnp.linalg.inv, jnp.linalg.det, jnp.linalg.slogdet, jnp.linalg.pinv, jnp.linalg.eigvals),
    *(jsl.lu, jsl.lu_factor, jsl.expm, jsl.schur, jsl.hessenberg, jsl.sqrtm, jsl.polar),
    jsl.qr,
    *(lax.linalg.tridiagonal, lax.linalg.lu, lax.linalg.eigh, lax.linalg.svd),
    *(lambda a: jnp.linalg.solve(a, a), lambda a: jsl.solve_triangular(a, a)),
    *(lambda a: lax.linalg.householder_product(a, a[0]), lambda a: jnp.linalg.lstsq(a, a)),
    *(lambda a: lax.linalg.tridiagonal_solve(a[0], a[1], a[2], a),),
)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{f"{kind} {i}": (fn, (X,)) for kind, fns in ELEMENTWISE.items() for i, fn in enumerate(fns)},
    **{f"half {kind}": (fns[0], (H,)) for kind, fns in ELEMENTWISE.items()},
    **{f"pair {i}": (fn, (X, X)) for i, fn in enumerate(PAIRS)},
    **{f"complex {i}": (fn, (Z,)) for i, fn in enumerate(COMPLEX)},
    **{f"linalg {i}": (fn, (X,)) for i, fn in enumerate(LINALG)},
    "polygamma": (lambda x: jss.polygamma(2, x), (X,)),
    "betainc": (jss.betainc, (X, X, X)),
    "integers": (lambda n: (n // 3, n % 3, n**2, n.astype(bool), abs(n), n.max(), n @ n), (N,)),
    "casts": (lambda x: x.astype(jnp.int8).astype(jnp.bfloat16).astype(jnp.uint8), (X,)),
    "gammas": (lambda key: jax.random.gamma(key, 2.0, (100,)), (KEY,)),
    "dirichlet": (lambda key: jax.random.dirichlet(key, jnp.ones(3), (100,)), (KEY,)),
    "poisson": (lambda key: jax.random.poisson(key, 2.0, (100,)), (KEY,)),
    "ragged": (lambda x, i: lax.ragged_dot(x, jnp.ones((3, 8, 5)), i), (X, COUNTS)),
    "pooling": (lambda x: jax.grad(lambda x: _pooled(x).sum())(x), (X,)),
    "sorting": (lambda x: (jnp.sort(x), jnp.argsort(x), jnp.median(x), lax.top_k(x, 3)), (X,)),
    "interpolation": (lambda v: jnp.interp(v, v, v), (V,)),
}


def _pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID")


@pytest.mark.sampled(44)
@pytest.mark.parametrize("name", CASES)
def test_little_is_left_to_defaults(name: str) -> None:
    fn, arguments = CASES[name]
    totals = kernel(fn, *arguments).totals.values()
    left = sum(total.compute_cycles for total in totals if total.source == "default")
    assert left <= 0.3 * sum(total.compute_cycles for total in totals)
