"""Functions that take functions: those that they take stand on another IPU than they themselves.

Each is called in shard 1; `on(0, ...)` puts what it is given into shard 0.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax
from jax.experimental import ode
from jax.scipy import optimize
from jax.scipy.sparse import linalg as sparse_linalg

from tests.sweep.examples import SORTED, A, S, V, W, X, Y, on, table

LAX = table(lax)
NUMPY = table(jnp)
SPARSE = table(sparse_linalg)
OPTIMIZE = table(optimize)
LINALG = table(jsp.linalg)
ODE = table(ode)

SQUARED = on(0, lambda x: x * x)
ADDED = on(0, lambda x, y: x + y)


def step(carry: Any, x: Any) -> Any:
    """A step of a scan with marks inside."""
    moved = on(0, lambda c: jnp.tanh(c) + 1)(carry)
    return moved * x, (carry, moved - x)


def residual(x: Any) -> Any:
    return x**3 + x - 2 * V


def newton(f: Any, start: Any) -> Any:
    def once(_: Any, x: Any) -> Any:
        value, slope = jax.jvp(f, (x,), (jnp.ones_like(x),))
        return on(0, lambda a, b: a / b)(x * slope - value, slope)

    return lax.fori_loop(0, 8, once, start)


def rosenbrock(x: Any) -> Any:
    valley = on(0, lambda x: jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2))(x)
    return valley + jnp.sum((1 - x[:-1]) ** 2)


def pull(y: Any, t: Any, rate: Any) -> Any:
    return on(0, lambda y: -rate * y)(y) + jnp.sin(t)


def times(matrix: Any) -> Any:
    return on(0, lambda x: matrix @ x)


# --- control flow -------------------------------------------------------------------------------

LAX("scan", V, X, by=lambda f, v, x: f(step, v[:3], x))
LAX("scan", V, X, by=lambda f, v, x: f(step, v[:3], x, reverse=True, unroll=2), note="reverse")
LAX("map", X, by=lambda f, x: f(SQUARED, x))
LAX("fori_loop", V, by=lambda f, v: f(0, 3, lambda i, c: SQUARED(c) + i, v))
LAX(
    "fori_loop",
    V,
    3,
    by=lambda f, v, n: f(0, n, lambda i, c: SQUARED(c) + i, v),
    note="unknown",
    lacks="derivative",
)
LAX(
    "while_loop",
    V,
    by=lambda f, v: f(
        on(0, lambda c: c[0].sum() < 9), lambda c: (SQUARED(c[0]) + 1, c[1] + 1), (v, 0)
    ),
    lacks="derivative",
)
LAX("cond", True, V, by=lambda f, p, v: f(p, SQUARED, jnp.sin, v))
LAX("switch", 2, V, by=lambda f, i, v: f(i, [jnp.sin, SQUARED, lambda x: SQUARED(x) + 1], v))
LAX("associative_scan", V, by=lambda f, v: f(ADDED, v))
LAX("platform_dependent", V, by=lambda f, v: f(v, cpu=SQUARED, default=jnp.sin))
LAX("composite", V, by=lambda f, v: f(SQUARED, "my.square")(v), lacks="derivative batch")
LAX("reduce", X, by=lambda f, x: f(x, 0.0, ADDED, (1,)))
LAX(
    "reduce",
    X,
    Y,
    by=lambda f, x, y: f((x, y), (1.0, 0.5), lambda a, b: (a[0] * b[0], a[1] - b[1]), (0,)),
    note="pairs",
)
LAX("reduce_window", X, by=lambda f, x: f(x, 0.0, lax.add, (1, 2), (1, 1), "SAME"))
LAX(
    "reduce_window",
    X,
    by=lambda f, x: f(x, 1.0, lambda a, b: a * b + a, (1, 2), (1, 1), "VALID"),
    note="any",
    lacks="derivative",
)
LAX(
    "custom_root",
    V,
    by=lambda f, v: f(
        lambda x: on(0, lambda x: x**3 + x - 2 * v)(x),
        v,
        newton,
        lambda g, y: y / g(jnp.ones_like(y)),
    ),
    exact=False,
)
LAX(
    "custom_linear_solve",
    S,
    X[0],
    by=lambda f, m, b: f(times(m), b, lambda mv, b: on(0, jnp.linalg.solve)(m, b), symmetric=True),
    exact=False,
)
LAX(
    "custom_linear_solve",
    A,
    X[0],
    by=lambda f, m, b: f(
        times(m),
        b,
        lambda mv, b: jnp.linalg.solve(m, b),
        transpose_solve=on(0, lambda mv, b: jnp.linalg.solve(m.T, b)),
    ),
    note="not symmetric",
    exact=False,
)

# --- NumPy's ------------------------------------------------------------------------------------

NUMPY("apply_along_axis", X, by=lambda f, x: f(on(0, jnp.cumsum), 1, x))
NUMPY(
    "apply_over_axes",
    X,
    by=lambda f, x: f(on(0, lambda x, axis: jnp.sum(x, axis, keepdims=True)), x, (0, 1)),
)
NUMPY("fromfunction", X, by=lambda f, x: x + f(on(0, lambda i, j: i * 2 + j), (2, 3), dtype=float))
NUMPY("frompyfunc", X, Y, by=lambda f, x, y: f(ADDED, 2, 1, identity=0)(x, y))
NUMPY("frompyfunc", X, by=lambda f, x: f(ADDED, 2, 1, identity=0).reduce(x, axis=1), note="reduce")
NUMPY("frompyfunc", X, by=lambda f, x: f(ADDED, 2, 1).accumulate(x, axis=1), note="accumulate")
NUMPY("mask_indices", X, by=lambda f, x: f(2, on(0, jnp.triu), size=3))
NUMPY("piecewise", X, by=lambda f, x: f(x, [x < 0.4, x > 0.8], [SQUARED, 0.5, on(0, jnp.exp)]))
NUMPY("vectorize", X, Y, by=lambda f, x, y: f(on(0, jnp.dot), signature="(k),(k)->()")(x, y))

# --- solvers ------------------------------------------------------------------------------------

SPARSE("cg", S, X[0], by=lambda f, m, b: f(times(m), b, maxiter=4)[0], exact=False)
SPARSE(
    "cg",
    S,
    X[0],
    by=lambda f, m, b: f(m, b, M=times(jnp.eye(3) / 3))[0],
    note="a matrix",
    exact=False,
)
SPARSE("bicgstab", A, X[0], by=lambda f, m, b: f(times(m), b, maxiter=4)[0], exact=False)
SPARSE("gmres", A, X[0], by=lambda f, m, b: f(times(m), b, maxiter=2, restart=2)[0], exact=False)
SPARSE(
    "gmres",
    A,
    X[0],
    by=lambda f, m, b: f(times(m), b, maxiter=1, restart=2, solve_method="incremental")[0],
    note="incremental",
    exact=False,
)
OPTIMIZE(
    "minimize",
    W[:2],
    by=lambda f, x: f(rosenbrock, x, method="BFGS", options={"maxiter": 3}).x,
    exact=False,
    lacks="derivative",
)
LINALG(
    "funm", S, by=lambda f, x: f(x, on(0, jnp.exp), disp=False)[0], exact=False, lacks="derivative"
)
ODE("odeint", V, SORTED, 0.5, by=lambda f, y, t, rate: f(pull, y, t, rate), exact=False)

EXAMPLES = [
    example for found in (LAX, NUMPY, SPARSE, OPTIMIZE, LINALG, ODE) for example in found.examples
]
