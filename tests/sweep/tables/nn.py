"""`jax.nn`, its initializers, and `jax.random`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import initializers

from tests.sweep.examples import KEY, LARGE, SIGNED, B, I, S, V, X, Y, table, with_key

NN = table(jax.nn)
INITIALIZERS = table(initializers)
RANDOM = table(jax.random)

NN(
    "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid "
    "mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus "
    "swish tanh",
    SIGNED,
    casts=True,
)
NN("log_softmax logmeanexp logsumexp softmax standardize", SIGNED, casts=True)
NN("softmax logsumexp", SIGNED, B, by=lambda f, x, p: f(x, axis=0, where=p), note="where")
NN("glu", SIGNED[:, :2])
NN("log1mexp", X)
NN("one_hot", I, by=lambda f, i: f(i, 4))
HEADS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 3, 2, 4)
NN("dot_product_attention", HEADS, HEADS * 0.5, HEADS + 0.2, casts=True)
NN(
    "dot_product_attention",
    HEADS,
    HEADS * 0.5,
    HEADS + 0.2,
    by=lambda f, *x: f(*x, is_causal=True),
    note="causal",
)

SQUARES = "glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform orthogonal"
INITIALIZERS(
    f"{SQUARES} kaiming_normal kaiming_uniform normal truncated_normal uniform xavier_normal "
    "xavier_uniform",
    KEY,
    by=lambda f, k: f()(jax.random.wrap_key_data(k), (3, 4)),
)
INITIALIZERS("ones zeros", KEY, by=lambda f, k: f(jax.random.wrap_key_data(k), (3, 4)))
INITIALIZERS("constant", KEY, by=lambda f, k: f(0.5)(jax.random.wrap_key_data(k), (3, 4)))
INITIALIZERS("delta_orthogonal", KEY, by=lambda f, k: f()(jax.random.wrap_key_data(k), (3, 2, 2)))
INITIALIZERS(
    "variance_scaling",
    KEY,
    by=lambda f, k: f(1.0, "fan_avg", "truncated_normal")(jax.random.wrap_key_data(k), (3, 4)),
)

RANDOM("PRNGKey key", 3)
RANDOM("wrap_key_data", KEY)
RANDOM("key_data clone", KEY, by=with_key)
RANDOM("key_impl", KEY, by=lambda f, k: jax.random.wrap_key_data(k, impl=with_key(f, k)))
RANDOM("key_dtype", KEY, by=lambda f, k: jax.random.wrap_key_data(k, dtype=f()))
RANDOM("fold_in", KEY, 5, by=with_key)
RANDOM("split", KEY, by=with_key)
RANDOM("split", KEY, by=lambda f, k: f(k, 3), note="a raw key")
RANDOM("bits", KEY, by=lambda f, k: with_key(f, k, (3,)))
RANDOM(
    "cauchy exponential gumbel laplace logistic lognormal maxwell normal uniform",
    KEY,
    by=lambda f, k: f(jax.random.wrap_key_data(k), shape=(3,)),
)
RANDOM("normal uniform", KEY, by=lambda f, k: f(k, (3,), jnp.bfloat16), note="bfloat16")
RANDOM("normal", KEY, by=lambda f, k: f(k, (3,), jnp.complex64), note="complex")
RANDOM("rademacher", KEY, by=lambda f, k: with_key(f, k, (3,)))
RANDOM("ball orthogonal", KEY, by=lambda f, k: with_key(f, k, 2), exact=False)
RANDOM("bernoulli geometric", KEY, X, by=with_key)
RANDOM("gamma loggamma chisquare pareto poisson rayleigh t wald", KEY, LARGE, by=with_key)
RANDOM("beta f", KEY, LARGE, Y, by=with_key)
RANDOM("dirichlet", KEY, V, by=with_key)
RANDOM("binomial", KEY, 5.0, X, by=with_key)
RANDOM("multinomial", KEY, 5.0, X[0] / X[0].sum(), by=with_key)
RANDOM("categorical", KEY, SIGNED, by=with_key)
RANDOM("choice", KEY, V, by=lambda f, k, v: with_key(f, k, v, (2,), False))
RANDOM(
    "choice", KEY, V, by=lambda f, k, v: with_key(f, k, 4, (3,), True, v / v.sum()), note="weighted"
)
RANDOM("double_sided_maxwell", KEY, 0.5, 2.0, by=with_key)
RANDOM("weibull_min", KEY, 0.5, 2.0, by=with_key)
RANDOM("generalized_normal", KEY, by=lambda f, k: with_key(f, k, 1.5, (3,)))
RANDOM("multivariate_normal", KEY, V[:3], S, by=with_key)
RANDOM("permutation", KEY, X, by=with_key)
RANDOM("randint", KEY, 0, 9, by=lambda f, k, low, high: with_key(f, k, (4,), low, high))
RANDOM("triangular", KEY, 0.2, 0.5, 0.9, by=with_key)
RANDOM("truncated_normal", KEY, -1.0, 1.5, by=with_key)

EXAMPLES = [*NN.examples, *INITIALIZERS.examples, *RANDOM.examples]
