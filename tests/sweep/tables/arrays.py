"""`jax.numpy.linalg`, `jax.numpy.fft`, and the methods of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.sweep.examples import (
    COUNTS,
    CUBE,
    MASK,
    A,
    B,
    C,
    I,
    S,
    Table,
    V,
    W,
    X,
    Y,
    table,
)

LINALG = table(jnp.linalg)
FFT = table(jnp.fft)


def _method(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(x, name)
        return found(*args, **kwargs) if callable(found) else found

    return call


def _update(name: str) -> Callable[..., Any]:
    return lambda x, index, *args, **kwargs: getattr(x.at[index], name)(*args, **kwargs)


ARRAY = Table("jax.Array", _method)
AT = Table("jax.Array.at", _update)

# --- linear algebra -----------------------------------------------------------------------------

LINALG("cholesky det inv slogdet trace diagonal matrix_transpose", S)
LINALG("eig", A, exact=False, lacks="derivative")
LINALG("eigvals", A, exact=False)
LINALG("eigh eigvalsh svd svdvals pinv cond matrix_rank", S, exact=False)
LINALG("qr", S)
LINALG("lstsq", S, X[0], by=lambda f, x, y: f(x, y)[0], exact=False)
LINALG("solve", S, X[0])
LINALG("cross vecdot", X, Y)
LINALG("matmul tensordot", S, A)
LINALG("outer", V, W)
LINALG("matrix_norm norm vector_norm", X)
LINALG("norm", S, by=lambda f, x: f(x, 2), note="largest", exact=False)
LINALG("matrix_power", S, by=lambda f, x: f(x, 3))
LINALG("multi_dot", X, S, A, by=lambda f, *x: f(x))
LINALG("tensorinv", S, by=lambda f, x: f(x, ind=1))
LINALG("tensorsolve", S, X[0])

# --- Fourier transforms -------------------------------------------------------------------------

FFT("fft fft2 fftn ifft ifft2 ifftn hfft irfft irfft2 irfftn", C)
FFT("fft rfft rfft2 rfftn ihfft", X, note="real")
FFT("rfft rfft2 rfftn ihfft fftshift ifftshift", X)
FFT("fftfreq rfftfreq", X, by=lambda f, x: x[0, 0] * f(4))

# --- methods ------------------------------------------------------------------------------------

ARRAY("T mT imag real", C)
ARRAY(
    "all any argmax argmin argsort cumprod cumsum max mean min prod ptp sort std sum var",
    X,
    by=lambda f, x: f(x, axis=1),
)
ARRAY("conj conjugate copy flatten ravel round squeeze transpose", X)
ARRAY("nonzero", B, by=lambda f, x: f(x, size=3))
ARRAY("argpartition", V, by=lambda f, x: f(x, 2))
ARRAY("astype view", X, by=lambda f, x: f(x, jnp.int32))
ARRAY("byteswap", I)
ARRAY("choose", B.astype(np.int32), X, Y, by=lambda f, i, x, y: f(i, [x, y], mode="clip"))
ARRAY("clip", X, by=lambda f, x: f(x, 0.2, 0.6))
ARRAY("compress", V, MASK, by=lambda f, v, m: f(v, m, size=2))
ARRAY("diagonal trace", S)
ARRAY("dot", X, A)
ARRAY("itemsize nbytes ndim size", X, by=lambda f, x: x * f(x))
ARRAY("shape", X, by=lambda f, x: jnp.ones(f(x)) * x)
ARRAY("dtype", X, by=lambda f, x: x.astype(f(x)))
ARRAY("repeat", X, by=lambda f, x: f(x, 2, axis=1))
ARRAY("reshape", X, by=lambda f, x: f(x, 3, 2))
ARRAY("searchsorted", np.sort(V), X)
ARRAY("swapaxes", CUBE, by=lambda f, x: f(x, 0, 2))
ARRAY("take", X, np.array([2, 0], np.int32), by=lambda f, x, i: f(x, i, axis=1))

AT("add divide max min multiply mul power set subtract", X, 1, Y[0])
AT("add set max", X, COUNTS[:3] % 2, S, note="equal indices", by=lambda f, x, i, u: f(x, i, u))
AT("add", V, 0.5, note="a mask", by=lambda f, x, u: f(x, MASK, u))
AT("multiply", V, 0.5, note="a mask", by=lambda f, x, u: f(x, MASK, u), lacks="derivative")
AT(
    "set",
    CUBE,
    np.array([1, 0], np.int32),
    by=lambda f, x, i: f(x, (i, slice(1), i), 0.5),
    note="mixed",
)
AT("get", X, 1)
AT("get", X, 5, by=lambda f, x, i: f(x, i, mode="fill", fill_value=0.5), note="outside")
AT("apply", X, 1, by=lambda f, x, i: f(x, i, jnp.square), lacks="derivative")

EXAMPLES = [*LINALG.examples, *FFT.examples, *ARRAY.examples, *AT.examples]
