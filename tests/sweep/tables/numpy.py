"""`jax.numpy`, but for what takes functions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tests.sweep.examples import (
    COUNTS,
    CUBE,
    CV,
    LARGE,
    MASK,
    SIGNED,
    SORTED,
    A,
    B,
    C,
    D,
    I,
    J,
    S,
    U,
    V,
    W,
    X,
    Y,
    table,
)

NUMPY = table(jnp)

# --- elementwise --------------------------------------------------------------------------------

NUMPY(
    "absolute acos arccos arcsin arcsinh arctan arctanh cbrt ceil cos cosh deg2rad degrees exp "
    "exp2 expm1 fabs floor i0 log log10 log1p log2 nan_to_num negative positive rad2deg radians "
    "reciprocal rint sign signbit sin sinc sinh sqrt square tan tanh trunc asin asinh atan "
    "atanh abs",
    X,
    casts=True,
)
NUMPY("acosh arccosh", LARGE, casts=True)
NUMPY("angle conjugate conj imag real iscomplex isreal", C)
NUMPY("angle conjugate imag real iscomplex isreal", X, note="real")
NUMPY("isfinite isinf isnan isneginf isposinf", X)
NUMPY("exp log sqrt tanh arccos", C, note="complex")
NUMPY("power divide", C, C + 1, note="complex")
NUMPY("round around", X, by=lambda f, x: f(x, 1))
NUMPY("frexp modf", SIGNED)
NUMPY("ldexp", X, I)
NUMPY(
    "add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax "
    "fmin fmod greater greater_equal heaviside hypot less less_equal logaddexp logaddexp2 "
    "logical_and logical_or logical_xor maximum minimum mod multiply not_equal pow "
    "power remainder subtract true_divide",
    X,
    Y,
    casts=True,
)
NUMPY("nextafter", X, Y, lacks="derivative")
NUMPY("spacing", X, lacks="derivative")
NUMPY("isclose allclose array_equal array_equiv", X, Y)
NUMPY("logical_not", B)
NUMPY("add subtract multiply power maximum", X, 2.0, note="a Python number")
NUMPY("add multiply floor_divide", I, 2, note="a Python integer")
NUMPY(
    "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm left_shift "
    "right_shift",
    I,
    J,
)
NUMPY("bitwise_count bitwise_invert bitwise_not invert", I)
NUMPY("clip", X, by=lambda f, x: f(x, 0.2, 0.6), casts=True)
NUMPY("where", B, X, Y)
NUMPY("select", B, D, X, Y, by=lambda f, p, q, x, y: f([p, q], [x, y], 0.5))
NUMPY("choose", B.astype(np.int32), X, Y, by=lambda f, i, x, y: f(i, [x, y], mode="clip"))
NUMPY("interp", X, SORTED, V)
NUMPY("unwrap", SIGNED * 4)
NUMPY("astype", X, by=lambda f, x: f(x, jnp.int32))
NUMPY("array asarray copy", X, casts=True)
NUMPY("vectorize", X, by=lambda f, x: f(jnp.sin)(x), note="of one")

# --- reductions ---------------------------------------------------------------------------------

NUMPY(
    "all amax amin any average count_nonzero max mean median min "
    "nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar prod ptp std sum var",
    X,
    by=lambda f, x: f(x, axis=1),
    casts=True,
)
NUMPY("argmax argmin nanargmax nanargmin", X, by=lambda f, x: f(x, axis=1))
NUMPY("sum mean max std", CUBE, by=lambda f, x: f(x, axis=(0, 2), keepdims=True), note="of axes")
NUMPY("sum mean", X, B, by=lambda f, x, p: f(x, axis=0, where=p), note="where")
NUMPY("average", X, Y, by=lambda f, x, w: f(x, weights=w), note="weighted")
NUMPY("nanpercentile percentile", X, by=lambda f, x: f(x, 40.0, axis=1))
NUMPY("nanquantile quantile", X, by=lambda f, x: f(x, 0.4, axis=1, method="nearest"))
NUMPY("corrcoef cov", S)
NUMPY(
    "cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum",
    X,
    by=lambda f, x: f(x, axis=1),
    casts=True,
)
NUMPY("diff", X, casts=True)
NUMPY("ediff1d gradient trapezoid", V)
NUMPY("trace", S)

# --- shapes and layouts -------------------------------------------------------------------------

NUMPY("append", X, Y, by=lambda f, x, y: f(x, y, axis=0))
NUMPY("array_split hsplit split", X, by=lambda f, x: f(x, [1]))
NUMPY("atleast_1d atleast_2d atleast_3d", V)
NUMPY("block", X, Y, by=lambda f, x, y: f([[x, y], [y, x]]))
NUMPY("broadcast_arrays", X, V[:3])
NUMPY("broadcast_to", V, by=lambda f, x: f(x, (2, 4)))
NUMPY(
    "column_stack concat concatenate dstack hstack stack vstack",
    X,
    Y,
    by=lambda f, *x: f(x),
    casts=True,
)
NUMPY("delete", X, by=lambda f, x: f(x, 1, axis=1))
NUMPY("diag diagflat diagonal", S)
NUMPY("dsplit vsplit", CUBE, by=lambda f, x: f(x, 2))
NUMPY("expand_dims", X, by=lambda f, x: f(x, (0, 2)))
NUMPY("flip fliplr flipud rot90 ravel matrix_transpose transpose", X, casts=True)
NUMPY("insert", X, by=lambda f, x: f(x, 1, 0.5, axis=1))
NUMPY("kron outer", X[0], Y[0], casts=True)
NUMPY("meshgrid", V, W)
NUMPY("moveaxis", CUBE, by=lambda f, x: f(x, 0, 2))
NUMPY("pad", X, by=lambda f, x: f(x, 1))
NUMPY("pad", X, by=lambda f, x: f(x, ((1, 0), (0, 2)), mode="reflect"), note="reflect")
NUMPY("permute_dims", CUBE, by=lambda f, x: f(x, (2, 0, 1)))
NUMPY("repeat", X, by=lambda f, x: f(x, 2, axis=1), casts=True)
NUMPY(
    "repeat",
    X,
    COUNTS[:3],
    by=lambda f, x, n: f(x, n, axis=1, total_repeat_length=4),
    note="unequal",
)
NUMPY("reshape resize", X, by=lambda f, x: f(x, (3, 2)))
NUMPY("roll", X, by=lambda f, x: f(x, 1, axis=1), casts=True)
NUMPY("rollaxis", CUBE, by=lambda f, x: f(x, 2))
NUMPY("squeeze", CUBE[:1])
NUMPY("swapaxes", CUBE, by=lambda f, x: f(x, 0, 2))
NUMPY("tile", X, by=lambda f, x: f(x, (2, 2)), casts=True)
NUMPY("tril triu", S, casts=True)
NUMPY("unstack", X)
NUMPY("vander", V, by=lambda f, x: f(x, 3))

# --- what makes arrays --------------------------------------------------------------------------

NUMPY("arange", X, by=lambda f, x: x + f(3.0))
NUMPY("bartlett blackman hamming hanning", X, by=lambda f, x: x * f(3))
NUMPY("kaiser", X, by=lambda f, x: x * f(3, 2.0))
NUMPY("empty ones zeros", X, by=lambda f, x: x + 0 * f((2, 3)))
NUMPY("empty_like ones_like zeros_like", X, by=lambda f, x: x + 0 * f(x))
NUMPY("full", X, 0.5, by=lambda f, x, v: x + f((2, 3), v))
NUMPY("full_like", X, 0.5)
NUMPY("eye identity tri", X, by=lambda f, x: x @ f(3))
NUMPY("linspace", 0.5, 2.0, by=lambda f, a, b: f(a, b, 5))
NUMPY("geomspace logspace", 0.5, 2.0, by=lambda f, a, b: f(a, b, 5))
NUMPY("indices", X, by=lambda f, x: f((2, 3)) * x)
NUMPY("diag_indices tril_indices triu_indices", S, by=lambda f, x: x[f(3)])
NUMPY("diag_indices_from tril_indices_from triu_indices_from", S, by=lambda f, x: x[f(x)])
NUMPY("ix_", S, np.array([0, 2], np.int32), by=lambda f, x, i: x[f(i, i)])

# --- indices ------------------------------------------------------------------------------------

NUMPY("take", X, np.array([2, 0], np.int32), by=lambda f, x, i: f(x, i, axis=1), casts=True)
NUMPY("take_along_axis", X, np.array([[2], [0]], np.int32), by=lambda f, x, i: f(x, i, axis=1))
NUMPY("compress", MASK, V, by=lambda f, m, v: f(m, v, size=2))
NUMPY("extract", MASK, V, by=lambda f, m, v: f(m, v, size=2))
NUMPY("argwhere flatnonzero nonzero", B, by=lambda f, x: f(x, size=3))
NUMPY("fill_diagonal", S, 0.5, by=lambda f, x, v: f(x, v, inplace=False))
NUMPY("place", X, B, V, by=lambda f, x, m, v: f(x, m, v, inplace=False))
NUMPY("put", X, COUNTS[:2], V[:2], by=lambda f, x, i, v: f(x, i, v, inplace=False))
NUMPY(
    "put_along_axis",
    X,
    np.array([[2], [0]], np.int32),
    0.5,
    by=lambda f, x, i, v: f(x, i, v, axis=1, inplace=False),
)
NUMPY("ravel_multi_index", COUNTS, COUNTS, by=lambda f, i, j: f((i, j), (4, 4), mode="clip"))
NUMPY("unravel_index", COUNTS, by=lambda f, i: f(i, (2, 2)))

# --- sorting, searching, sets -------------------------------------------------------------------

NUMPY("argsort sort", X, casts=True)
NUMPY("argpartition partition", V, by=lambda f, x: f(x, 2))
NUMPY("lexsort", COUNTS, COUNTS[::-1], by=lambda f, a, b: f((a, b)))
NUMPY("sort_complex", CV)
NUMPY("digitize", X, SORTED)
NUMPY("searchsorted", SORTED, X)
NUMPY("isin", I, J)
NUMPY("intersect1d setdiff1d union1d", COUNTS, I[0], by=lambda f, a, b: f(a, b, size=4))
NUMPY("setxor1d", COUNTS[:2], I[0], by=lambda f, a, b: f(a, b, size=4))
NUMPY(
    "unique unique_all unique_counts unique_inverse unique_values",
    COUNTS,
    by=lambda f, a: f(a, size=4),
)
NUMPY("bincount", COUNTS, by=lambda f, a: f(a, length=4))
NUMPY("histogram", X, by=lambda f, x: f(x, 4, (0.0, 1.0)))
NUMPY("histogram_bin_edges", X, by=lambda f, x: f(x, 4))
NUMPY("histogram2d", V, SORTED, by=lambda f, a, b: f(a, b, 3))
NUMPY("histogramdd", S, by=lambda f, x: f(x, 2))
NUMPY("packbits", B, by=lambda f, x: f(x, axis=1))
NUMPY("unpackbits", U.astype(np.uint8), by=lambda f, x: f(x, axis=1))

# --- products, polynomials, signals -------------------------------------------------------------

NUMPY("dot inner matmul tensordot", S, A, by=lambda f, x, y: f(x, y), casts=True)
NUMPY("matmul", CUBE, CUBE.swapaxes(1, 2), note="batched", casts=True)
NUMPY("matvec", A, X, casts=True)
NUMPY("vecmat", X, np.stack([A, S]), casts=True)
NUMPY("vdot vecdot cross", X, Y, casts=True)
NUMPY("vdot vecdot", C, C[::-1], note="complex")
NUMPY("einsum", CUBE, X, by=lambda f, x, y: f("ijk,ij->ik", x, y), casts=True)
NUMPY(
    "einsum_path", X, A, by=lambda f, x, y: jnp.einsum("ij,jk", x, y, optimize=f("ij,jk", x, y)[0])
)
NUMPY("convolve correlate", V, W, casts=True)
NUMPY("poly polyder polyint", V)
NUMPY("polyadd polymul polysub", V, W)
NUMPY("polydiv", V, W[:2])
NUMPY("polyfit", SORTED, V, by=lambda f, x, y: f(x, y, 2), exact=False)
NUMPY("polyval", V, X)
NUMPY("roots", V, by=lambda f, x: f(x, strip_zeros=False), exact=False)

# --- what says something of shapes and types at trace time --------------------------------------

NUMPY("iscomplexobj isrealobj isscalar iterable ndim size", X, by=lambda f, x: x * f(x))
NUMPY("shape", X, by=lambda f, x: jnp.ones(f(x)) * x)
NUMPY("broadcast_shapes", X, by=lambda f, x: jnp.zeros(f(x.shape, (1, 3))) + x)
NUMPY("can_cast", X, by=lambda f, x: x * f(x.dtype, jnp.int32))
NUMPY("isdtype", X, by=lambda f, x: x * f(x.dtype, "real floating"))
NUMPY("issubdtype", X, by=lambda f, x: x * f(x.dtype, jnp.floating))
NUMPY("promote_types", X, by=lambda f, x: x.astype(f(x.dtype, jnp.complex64)))
NUMPY("result_type", X, I, by=lambda f, x, i: i.astype(f(x, i)))

EXAMPLES = NUMPY.examples
