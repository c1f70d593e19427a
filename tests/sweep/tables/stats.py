"""`jax.scipy.stats`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.scipy import stats

from tests.sweep.examples import COUNTS, KEY, LARGE, Example, S, V, X, Y, table

STATS = table(stats)
KDE = table(stats.gaussian_kde, "jax.scipy.stats.gaussian_kde")
FOUND: list[Example] = []


def distribution(
    name: str, functions: str, *args: Any, casts: bool = True, lacks: str = ""
) -> None:
    """Examples of a distribution's functions, all with the same arguments."""
    found = table(getattr(stats, name))
    found(functions, *args, casts=casts, lacks=lacks)
    FOUND.extend(found.examples)


CONTINUOUS = "cdf logcdf logpdf logsf pdf sf"
K = np.array([[0, 1, 2], [1, 3, 2]], np.int32)

distribution("bernoulli", "cdf logpmf pmf", K % 2, X)
distribution("bernoulli", "ppf", X, Y)
distribution("beta", "cdf logcdf logsf sf", X, LARGE, Y + 1, lacks="derivative")
distribution("beta", "logpdf pdf", X, LARGE, Y + 1)
distribution("betabinom", "logpmf pmf", K, 5, LARGE, Y)
distribution("binom", "logpmf pmf", K, 5, X)
distribution("cauchy", f"{CONTINUOUS} isf ppf", X, Y)
distribution("chi2", CONTINUOUS, LARGE, Y + 1)
distribution("dirichlet", "logpdf pdf", np.array([0.2, 0.5, 0.3], np.float32), LARGE[0])
distribution("expon", f"{CONTINUOUS} ppf", X, Y * 0.1)
distribution("gamma", CONTINUOUS, LARGE, Y + 1)
distribution("gennorm", "cdf logpdf pdf", X, LARGE)
distribution("geom", "logpmf pmf", K + 1, X)
distribution("gumbel_l", CONTINUOUS, X, Y)
distribution("gumbel_l", "ppf", X, Y, lacks="derivative")
distribution("gumbel_r", CONTINUOUS, X, Y)
distribution("gumbel_r", "ppf", X, Y, lacks="derivative")
distribution("laplace", "cdf logpdf pdf", X, Y)
distribution("logistic", "cdf isf logpdf pdf ppf sf", X, Y)
distribution("multinomial", "logpmf pmf", COUNTS[2:], 6, X[0] / X[0].sum())
# LAPACK has no bfloat16, which is found out when XLA compiles.
distribution("multivariate_normal", "logpdf pdf", X[0], Y[0], S, casts=False)
distribution("nbinom", "logpmf pmf", K, 5, X)
distribution("norm", f"{CONTINUOUS} isf ppf", X, Y)
distribution("pareto", f"{CONTINUOUS} ppf", LARGE, Y)
distribution("poisson", "cdf logpmf pmf", K, X)
distribution("poisson", "entropy", X)
distribution("t", "logpdf pdf", X, LARGE)
distribution("truncnorm", CONTINUOUS, X, -LARGE, LARGE)
distribution("uniform", "cdf logpdf pdf ppf", X, Y * 0.1)
distribution("vonmises", "logpdf pdf", X, LARGE)
distribution("wrapcauchy", "logpdf pdf", X, Y)

STATS("mode rankdata sem", X)

DATA = np.concatenate([X, Y], 1)
KDE("evaluate logpdf pdf", V, X[0], by=lambda f, v, x: f(stats.gaussian_kde(v), x))
KDE("integrate_box_1d", V, 0.1, 0.6, by=lambda f, v, a, b: f(stats.gaussian_kde(v), a, b))
KDE(
    "integrate_gaussian",
    DATA,
    V[:2],
    by=lambda f, v, m: f(stats.gaussian_kde(v), m, np.eye(2, dtype=np.float32)),
)
KDE("integrate_kde", V, X[0], by=lambda f, v, x: f(stats.gaussian_kde(v), stats.gaussian_kde(x)))
KDE("resample", V, KEY, by=lambda f, v, k: f(stats.gaussian_kde(v), k, (3,)))

EXAMPLES = [*FOUND, *STATS.examples, *KDE.examples]
