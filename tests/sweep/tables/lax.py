"""`jax.lax`, but for what takes functions, and `jax.lax.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.sweep.examples import (
    CUBE,
    LARGE,
    SIGNED,
    SORTED,
    A,
    B,
    C,
    D,
    I,
    J,
    L,
    R,
    S,
    V,
    W,
    X,
    Y,
    Z,
    table,
)

LAX = table(lax)
LINALG = table(lax.linalg)

IMAGE = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)
FILTERS = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 2, 2, 2)
ROWS = np.array([[1], [0]], np.int32)

# --- arithmetic, elementwise --------------------------------------------------------------------

LAX(
    "abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv "
    "erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg reciprocal round rsqrt "
    "sign sin sinh sqrt square tan tanh stop_gradient optimization_barrier stage",
    X,
    casts=True,
)
LAX("acosh", LARGE, casts=True)
LAX("conj imag real", C, note="complex")
LAX("conj imag", C)
LAX("abs exp log sqrt tanh sin", C, note="complex")
LAX("add atan2 complex div max min mul pow rem sub", X, Y, casts=True)
LAX("nextafter", X, Y, lacks="derivative")
LAX("div mul pow", C, C + 1, note="complex")
LAX("eq ge gt le lt ne", X, Y, casts=True)
LAX("igamma igammac", LARGE, Y)
LAX("igamma_grad_a random_gamma_grad zeta", LARGE, Y, lacks="derivative")
LAX("betainc", LARGE, Y + 1, X, lacks="derivative")
LAX("polygamma", np.full_like(X, 1), Y, lacks="derivative")
LAX("bitwise_and bitwise_or bitwise_xor mulhi", I, J)
LAX("bitwise_and bitwise_or bitwise_xor", B, D, note="bool")
LAX("shift_left shift_right_arithmetic shift_right_logical", I, J)
LAX("bitwise_not clz population_count", I)
LAX("bitwise_not", B, note="bool")
LAX("clamp", Y / 2, X, Z)
LAX("integer_pow", SIGNED, by=lambda f, x: f(x, 3), casts=True)
LAX("integer_pow", LARGE, by=lambda f, x: f(x, -2), note="negative")
LAX("reduce_precision", X, by=lambda f, x: f(x, 5, 6))
LAX("select", B, X, Y)
LAX("select_n", np.array([[0, 1, 2], [2, 1, 0]], np.int32), X, Y, Z)
LAX("bitcast_convert_type", X, by=lambda f, x: f(x, jnp.int32))
LAX("convert_element_type", X, by=lambda f, x: f(x, jnp.float16), casts=True)

# --- shapes and layouts -------------------------------------------------------------------------

LAX("broadcast", X, by=lambda f, x: f(x, (2, 2)), casts=True)
LAX("broadcast_in_dim", V, by=lambda f, v: f(v, (2, 4), (1,)), casts=True)
LAX("broadcast_like", X[:1], Y)
LAX("broadcast_to_rank", X, by=lambda f, x: f(x, 4))
LAX("collapse", CUBE, by=lambda f, x: f(x, 0, 2))
LAX("concatenate", X, Y, by=lambda f, x, y: f((x, y), 1), casts=True)
LAX("stack", X, Y, by=lambda f, x, y: f((x, y), 1), casts=True)
LAX("unstack", X, by=lambda f, x: f(x, 1), casts=True)
LAX("expand_dims", X, by=lambda f, x: f(x, (0, 2)))
LAX("squeeze", CUBE[:1], by=lambda f, x: f(x, (0,)))
LAX("pad", X, 0.5, by=lambda f, x, p: f(x, p, ((1, -1, 0), (0, 2, 1))))
LAX("reshape", X, by=lambda f, x: f(x, (3, 2)), casts=True)
LAX("reshape", X, by=lambda f, x: f(x, (6,), (1, 0)), note="with dimensions")
LAX("rev", X, by=lambda f, x: f(x, (1,)), casts=True)
LAX("slice", X, by=lambda f, x: f(x, (0, 1), (2, 3)), casts=True)
LAX("slice_in_dim", V, by=lambda f, x: f(x, 0, 4, 2))
LAX("split", X, by=lambda f, x: f(x, (1, 2), axis=1))
LAX("tile", X, by=lambda f, x: f(x, (2, 1)), casts=True)
LAX("transpose", CUBE, by=lambda f, x: f(x, (2, 0, 1)), casts=True)
LAX("iota", X, by=lambda f, x: x * f(jnp.float32, 3))
LAX("broadcasted_iota", X, by=lambda f, x: x * f(jnp.float32, (2, 3), 1))
LAX("full", X, by=lambda f, x: x + f((2, 3), 0.5))
LAX("full_like", X, by=lambda f, x: x + f(x, 0.5))
LAX("empty", X, by=lambda f, x: x + 0 * f((2, 3), jnp.float32))
LAX("create_token", X, by=lambda f, x: (f(x), x)[1])
LAX("after_all", X, by=lambda f, x: (f(lax.create_token(x)), x)[1])
LAX("dce_sink", X, by=lambda f, x: (f(x), x)[1])

# --- what says something of shapes and types at trace time --------------------------------------

LAX("broadcast_shapes", X, by=lambda f, x: jnp.zeros(f(x.shape, (1, 3))) + x)
LAX("dtype", X, by=lambda f, x: x.astype(f(x)))
LAX("shape_as_value", X, by=lambda f, x: f(x.shape) * x.sum())
LAX(
    "reduce_window_shape_tuple",
    X,
    by=lambda f, x: x * sum(f(x.shape, (1, 2), (1, 1), ((0, 0), (0, 0)))),
)
LAX(
    "padtype_to_pads",
    X,
    by=lambda f, x: lax.pad(x, 0.0, [(*p, 0) for p in f((2, 3), (2, 2), (1, 1), "SAME")]),
)
LAX(
    "conv_shape_tuple",
    IMAGE,
    by=lambda f, x: x * sum(f(x.shape, FILTERS.shape, (1, 1), ((0, 0), (0, 0)))),
)
LAX(
    "conv_general_shape_tuple conv_transpose_shape_tuple",
    IMAGE,
    by=lambda f, x: x * sum(f(x.shape, FILTERS.shape, (1, 1), "VALID", ("NCHW", "OIHW", "NCHW"))),
)
LAX(
    "conv_dimension_numbers",
    IMAGE,
    by=lambda f, x: lax.conv_general_dilated(
        x, FILTERS, (1, 1), "SAME", dimension_numbers=f(x.shape, FILTERS.shape, None)
    ),
)
LAX("conv_general_permutations", IMAGE, by=lambda f, x: x.transpose(f(("NCHW", "OIHW", "NHWC"))[2]))

# --- slices that depend on values, gather and scatter -------------------------------------------

LAX("dynamic_slice", X, 1, 0, by=lambda f, x, i, j: f(x, (i, j), (1, 2)))
LAX("dynamic_slice_in_dim", X, 1, by=lambda f, x, i: f(x, i, 2, axis=1))
LAX("dynamic_index_in_dim", X, 1, by=lambda f, x, i: f(x, i, axis=1))
LAX("dynamic_update_slice", X, X[:1, :2], 1, 0, by=lambda f, x, u, i, j: f(x, u, (i, j)))
LAX("dynamic_update_slice_in_dim", X, X[:1], 1, by=lambda f, x, u, i: f(x, u, i, 0))
LAX("dynamic_update_index_in_dim", X, X[0], 1, by=lambda f, x, u, i: f(x, u, i, 0))
LAX("index_in_dim", X, by=lambda f, x: f(x, 1, 1))
LAX("index_take", X, ROWS[:, 0], by=lambda f, x, i: f(x, (i,), (0,)))
LAX(
    "gather",
    X,
    ROWS,
    by=lambda f, x, i: f(x, i, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
    casts=True,
)
ROW_NUMBERS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
LAX(
    "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub",
    X,
    ROWS,
    Y,
    by=lambda f, x, i, u: f(x, i, u, ROW_NUMBERS, unique_indices=True),
    casts=True,
)
LAX(
    "scatter_apply",
    X,
    ROWS,
    by=lambda f, x, i: f(x, i, jnp.square, ROW_NUMBERS, update_shape=(2, 3), unique_indices=True),
    lacks="derivative",
)

# --- products and convolutions ------------------------------------------------------------------

LAX("dot", X, A, casts=True)
LAX("dot_general", CUBE, CUBE, by=lambda f, x, y: f(x, y, (((2,), (2,)), ((0,), (0,)))), casts=True)
LAX("batch_matmul", CUBE, CUBE.swapaxes(1, 2), casts=True)
LAX("ragged_dot", X, np.stack([A, S]), np.array([1, 1], np.int32))
LAX(
    "ragged_dot_general",
    X,
    np.stack([A, S]),
    np.array([1, 1], np.int32),
    by=lambda f, x, y, n: f(
        x, y, n, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
    ),
)
LAX("scaled_dot", X, A, lacks="derivative")
LAX("conv", IMAGE, FILTERS, by=lambda f, x, w: f(x, w, (1, 1), "SAME"), casts=True)
LAX(
    "conv_with_general_padding",
    IMAGE,
    FILTERS,
    by=lambda f, x, w: f(x, w, (2, 1), ((1, 0), (0, 1)), (1, 1), (1, 2)),
)
LAX(
    "conv_general_dilated",
    IMAGE,
    FILTERS[:, :1],
    by=lambda f, x, w: f(x, w, (1, 2), "SAME", rhs_dilation=(1, 2), feature_group_count=2),
)
LAX(
    "conv_general_dilated_local",
    IMAGE,
    np.ones((2, 8, 3, 3), np.float32),
    by=lambda f, x, w: f(x, w, (1, 1), "VALID", (2, 2)),
)
LAX("conv_general_dilated_patches", IMAGE, by=lambda f, x: f(x, (2, 2), (1, 1), "VALID"))
LAX(
    "conv_transpose",
    IMAGE.transpose(0, 2, 3, 1),
    FILTERS,
    by=lambda f, x, w: f(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
)

# --- reductions, scans, sorting -----------------------------------------------------------------

LAX("reduce_max reduce_min reduce_prod reduce_sum", X, by=lambda f, x: f(x, (1,)), casts=True)
LAX("reduce_and reduce_or reduce_xor", B, by=lambda f, x: f(x, (0,)))
LAX("reduce_and reduce_or reduce_xor", I, by=lambda f, x: f(x, (0,)), note="integers")
LAX("argmax argmin", X, by=lambda f, x: f(x, 1, jnp.int32))
LAX("cumlogsumexp cummax cummin cumprod cumsum", X, by=lambda f, x: f(x, 1, True), casts=True)
LAX("sort", X, casts=True)
LAX("sort", I, X, by=lambda f, i, x: f((i, x), dimension=0, num_keys=1), note="several")
LAX("sort_key_val", I, X)
LAX("top_k", X, by=lambda f, x: f(x, 2), casts=True)
LAX("approx_max_k approx_min_k", X, by=lambda f, x: f(x, 2))
LAX("fft", C, by=lambda f, x: f(x, "fft", (3,)))

# --- bits ---------------------------------------------------------------------------------------

LAX(
    "rng_bit_generator",
    np.array([1, 2, 3, 4], np.uint32),
    by=lambda f, k: f(k, (3,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
)

# --- collectives, over an axis of vmap ----------------------------------------------------------


def over_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `function(f, x)` for each row of an array, the axis being called `i`."""

    def call(f: Callable[..., Any], x: Any) -> Any:
        return jax.vmap(lambda row: function(f, row), axis_name="i")(x)

    return call


ALL = over_axis(lambda f, x: x + f(x, "i").sum())
LAX("all_gather psum pmean", S, by=ALL)
LAX("pmax pmin", S, by=ALL, lacks="derivative")
LAX("psum", S, by=over_axis(lambda f, x: f(x, "i")), note="alone")
LAX("all_to_all", S, by=over_axis(lambda f, x: f(x, "i", 0, 0)))
LAX("pswapaxes", S, by=over_axis(lambda f, x: f(x, "i", 0)))
LAX("psum_scatter", S, by=over_axis(lambda f, x: f(x, "i")))
LAX("ppermute", S, by=over_axis(lambda f, x: f(x, "i", [(0, 1), (1, 2), (2, 0)])))
LAX("pshuffle", S, by=over_axis(lambda f, x: f(x, "i", [1, 2, 0])))
LAX("axis_index axis_size", S, by=over_axis(lambda f, x: x * f("i")))

# --- linear algebra -----------------------------------------------------------------------------

LINALG("cholesky", S)
LINALG("cholesky_update", R, S[0], lacks="derivative batch")
LINALG("eig", A, exact=False, lacks="derivative")
LINALG("eigh", S, exact=False)
LINALG("lu qr", S)
LINALG("hessenberg schur tridiagonal", S, lacks="derivative")
LINALG("qdwh", S, by=lambda f, x: f(x)[:2], exact=False, lacks="derivative")
LINALG("svd", A, exact=False)
LINALG("householder_product", A, X[0], lacks="derivative")
LINALG("ormqr", A, X[0], S, lacks="derivative")
LINALG("lu_pivots_to_permutation", np.array([1, 2, 2], np.int32), by=lambda f, x: f(x, 3))
LINALG("symmetric_product", A, S, lacks="derivative")
LINALG("triangular_solve", L, S, by=lambda f, x, y: f(x, y, left_side=True, lower=True))
LINALG("tridiagonal_solve", SORTED - 0.1, V + 2, W, np.stack([V, W], 1))

EXAMPLES = [*LAX.examples, *LINALG.examples]
