"""`jax.scipy`, but for its statistics and what takes functions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy import fft, integrate, interpolate, linalg, ndimage, signal, special
from jax.scipy.cluster import vq
from jax.scipy.spatial import transform

from tests.sweep.examples import (
    CUBE,
    LARGE,
    SORTED,
    A,
    C,
    R,
    S,
    V,
    W,
    X,
    Y,
    table,
)

SPECIAL = table(special)
LINALG = table(linalg)
SIGNAL = table(signal)
FFT = table(fft)
NDIMAGE = table(ndimage)
INTEGRATE = table(integrate)
INTERPOLATE = table(interpolate)
VQ = table(vq)
ROTATION = table(transform.Rotation, "jax.scipy.spatial.transform.Rotation")
SPATIAL = table(transform)

SPECIAL(
    "dawsn digamma entr erf erfc erfcx erfinv exp1 expit factorial fresnel gamma gammaln "
    "gammasgn i0 i0e i1 i1e log_ndtr log_softmax loggamma logit logsumexp ndtr ndtri sici "
    "spence",
    X,
    casts=True,
)
SPECIAL("bernoulli", X, by=lambda f, x: x[0, 0] * f(6))
SPECIAL("bessel_jn", V, by=lambda f, x: f(x, v=2, n_iter=20))
SPECIAL(
    "beta betaln boxcox boxcox1p owens_t poch rel_entr kl_div xlog1py xlogy gammainc gammaincc",
    LARGE,
    Y,
)
SPECIAL("zeta", LARGE, Y)
SPECIAL("polygamma", 1, Y)
SPECIAL("betainc", LARGE, Y + 1, X, lacks="derivative")
SPECIAL("comb", 5.0, 2.0)
SPECIAL("expn", 2, X)
SPECIAL("hyp1f1", 1.5, 2.5, X)
SPECIAL("hyp2f1", 1.5, 0.5, 2.5, X)
SPECIAL("multigammaln", LARGE + 1, by=lambda f, x: f(x, 2))
SPECIAL(
    "sph_harm_y",
    np.array([2, 1], np.int32),
    np.array([1, 0], np.int32),
    V[:2],
    W[:2],
    by=lambda f, *x: f(*x, n_max=2),
)
SPECIAL("expi softmax", X)
SPECIAL("wofz", C)

LINALG("cholesky det inv", S, exact=False)
LINALG("block_diag", X, A)
LINALG("cho_factor lu lu_factor qr", S)
LINALG("hessenberg polar schur sqrtm", S, exact=False, lacks="derivative")
LINALG("cho_solve", S, X[0], by=lambda f, x, y: f(linalg.cho_factor(x), y))
LINALG("lu_solve", S, X[0], by=lambda f, x, y: f(linalg.lu_factor(x), y))
LINALG("eigh expm svd", S, exact=False)
LINALG("circulant companion fiedler fiedler_companion hankel toeplitz", V)
LINALG("convolution_matrix", V, by=lambda f, x: f(x, 3))
LINALG("leslie", V, W[:3])
LINALG(
    "dft hadamard helmert hilbert invhilbert invpascal pascal", X, by=lambda f, x: x[0, 0] * f(4)
)
LINALG(
    "eigh_tridiagonal",
    V + 1,
    W[:3],
    by=lambda f, d, e: f(d, e, eigvals_only=True),
    exact=False,
    lacks="derivative",
)
LINALG("expm_frechet", S, A, exact=False)
LINALG("qr_multiply", S, A, exact=False, lacks="derivative")
LINALG("rsf2csf", S, by=lambda f, x: f(*linalg.schur(x)), exact=False, lacks="derivative")
LINALG("solve", S, X[0])
LINALG("solve_triangular", R, X[0])
LINALG("solve_sylvester", A, S, S, exact=False, lacks="derivative")

SIGNAL("convolve correlate fftconvolve", V, W)
SIGNAL("convolve2d correlate2d", S, A)
WAVE = np.sin(np.arange(16, dtype=np.float32))
SIGNAL("detrend", WAVE, by=lambda f, x: f(x, bp=8))
SIGNAL("csd", WAVE, WAVE[::-1], by=lambda f, x, y: f(x, y, nperseg=8))
SIGNAL("stft welch", WAVE, by=lambda f, x: f(x, nperseg=8))
SIGNAL("istft", WAVE, by=lambda f, x: f(signal.stft(x, nperseg=8)[2], nperseg=8))

FFT("dct dctn idct idctn", X)
NDIMAGE("map_coordinates", S, V, V, by=lambda f, x, i, j: f(x, [i, j], order=1))
INTEGRATE("trapezoid", V, SORTED)
INTERPOLATE(
    "RegularGridInterpolator",
    CUBE[0],
    V[:3],
    by=lambda f, x, p: f((jnp.arange(3.0), jnp.arange(4.0)), x)(jnp.stack([p, p], 1)),
)
VQ("vq", S, A)

# --- rotations ----------------------------------------------------------------------------------

QUATERNION = V / np.linalg.norm(V)


def rotation(data: Any) -> Any:
    return transform.Rotation.from_quat(data)


ROTATION("from_quat", QUATERNION, by=lambda f, q: f(q).as_matrix())
ROTATION("from_matrix", QUATERNION, by=lambda f, q: f(rotation(q).as_matrix()).as_quat())
ROTATION("from_euler", X[0], by=lambda f, x: f("xyz", x).as_quat())
ROTATION("from_rotvec from_mrp", X[0], by=lambda f, x: f(x).as_quat())
ROTATION(
    "as_matrix as_mrp as_quat as_rotvec magnitude inv", QUATERNION, by=lambda f, q: f(rotation(q))
)
ROTATION("as_euler", QUATERNION, by=lambda f, q: f(rotation(q), "xyz"))
ROTATION("apply", QUATERNION, X, by=lambda f, q, x: f(rotation(q), x))
ROTATION(
    "concatenate", QUATERNION, by=lambda f, q: f([rotation(q[None]), rotation(q[None])]).as_quat()
)
ROTATION("mean", QUATERNION, by=lambda f, q: f(rotation(q[None])).as_quat(), exact=False)
ROTATION("identity", X, by=lambda f, x: f().apply(x))
SPATIAL(
    "Slerp",
    X,
    by=lambda f, x: f.init(jnp.arange(2.0), transform.Rotation.from_rotvec(x))(0.3).as_quat(),
)

EXAMPLES = [
    example
    for found in (
        SPECIAL,
        LINALG,
        SIGNAL,
        FFT,
        NDIMAGE,
        INTEGRATE,
        INTERPOLATE,
        VQ,
        ROTATION,
        SPATIAL,
    )
    for example in found.examples
]
