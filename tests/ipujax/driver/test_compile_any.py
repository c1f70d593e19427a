"""Any JAX function compiles: a table of functions, each run by every reader of the Program.

`plain` programs are one kernel and give `jax.jit`'s numbers bit for bit. `scattered` ones have
their equations dealt out to two IPUs, loop bodies and branches included.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import ipujax as ipu
from lowering.jaxprs import jaxpr
from tests.numbers import same, scattered, use_ipus

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
V = np.array([0.5, -1.5, 2.0], np.float32)
ROOT = (np.eye(3) * 2 + np.arange(9).reshape(3, 3) / 20).astype(np.float32)
M = ROOT @ ROOT.T
BIG = np.arange(50_000, dtype=np.float32)
IMAGE = np.linspace(-1, 1, 2 * 6 * 6 * 2, dtype=np.float32).reshape(2, 6, 6, 2)
FILTERS = np.linspace(-1, 1, 3 * 3 * 2 * 2, dtype=np.float32).reshape(3, 3, 2, 2)


@dc.dataclass(frozen=True, eq=False)
class Case:
    """One row of the table.

    Attributes:
      name: what the row is about.
      fn: a function of `args`.
      args: its arguments.
      exact: whether a plain program's numbers are those of `jax.jit` bit for bit.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    exact: bool = True


CASES: list[Case] = []


def case(*args: Any, name: str | None = None, exact: bool = True) -> Callable[..., Any]:
    """Puts the decorated function of `args` into the table."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(name or fn.__name__, fn, args, exact))
        return fn

    return add


# --- calls and control flow ---------------------------------------------------------------------


@case(X)
def nested_jit(x):
    @jax.jit
    def inner(y):
        return jax.jit(jnp.sin)(y) + 1

    return inner(inner(x)) * 2


@case(X)
def scan_with_slices_and_stacks(x):
    return lax.scan(lambda c, row: (c * 0.5 + row, (c.sum(), row * c)), jnp.zeros(4), x)


@case(X)
def scan_in_reverse(x):
    return lax.scan(lambda c, row: (c + row, c * row), jnp.ones(4), x, reverse=True)


@case(X)
def scan_without_loop_variables(x):
    return lax.scan(lambda _, row: (None, jnp.cos(row)), None, x)[1]


@case(V)
def scan_without_slices(v):
    return lax.scan(lambda c, _: (c * 1.5, c.sum()), v, None, length=4)


@case(X[:0])
def scan_of_no_iterations(x):
    return lax.scan(lambda c, row: (c + row, c * 2), jnp.ones(4), x)


@case(X)
def scan_unrolled(x):
    return lax.scan(lambda c, row: (c + row, c), jnp.ones(4), x, unroll=2)


@case(X)
def scan_in_scan(x):
    def outer(c, row):
        return lax.scan(lambda d, e: (d * e + c.sum(), d), row.sum(), row)[0] + c, row

    return lax.scan(outer, jnp.zeros(()), x)


@case(np.float32(0.1))
def while_with_constants(x):
    limit, step = x * 100, jnp.exp(x)
    return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + step, c[1] * 0.5), (x, x))


@case(V, np.int32(5))
def fori_with_run_time_bounds(v, n):
    return lax.fori_loop(1, n, lambda i, c: c * 0.9 + i, v)


@case(V)
def fori_over_nothing(v):
    return lax.fori_loop(3, 3, lambda i, c: c * i, v)


@case(V, True, name="cond_true")
@case(V, False, name="cond_false")
def cond(v, yes):
    w = jnp.sin(v)
    return lax.cond(yes, lambda a, b: (a + b, b), lambda a, b: (a * b, a), v, w)


@case(V)
def cond_without_operands(v):
    return lax.cond(v[0] > 0, lambda: jnp.ones(2), lambda: jnp.zeros(2))


@case(V, np.int32(-3), name="switch_below")
@case(V, np.int32(1), name="switch_inside")
@case(V, np.int32(9), name="switch_above")
def switch(v, number):
    return lax.switch(number, [jnp.sin, lambda a: a * 2, lambda a: -a], v)


@case(X)
def cond_in_while_in_scan(x):
    def settle(row):
        def step(c):
            return lax.cond(c.sum() > 0, lambda d: d - 0.7, lambda d: d / 2, c)

        return lax.while_loop(lambda c: jnp.abs(c).max() > 0.5, step, row * 3)

    return lax.scan(lambda c, row: (c + 1, settle(row[0])), 0, x)


@case(X)
def mapped(x):
    return lax.map(lambda row: jnp.dot(row, row), x, batch_size=2)


@case(X)
def scanned_associatively(x):
    return lax.associative_scan(jnp.multiply, x, axis=1)


# --- derivatives --------------------------------------------------------------------------------


@jax.custom_jvp
def _log1pexp(x):
    return jnp.log(1.0 + jnp.exp(x))


@_log1pexp.defjvp
def _log1pexp_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return _log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * t


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _clipped(limit, x):
    return x * 2


def _clipped_forward(limit, x):
    return x * 2, jnp.abs(x)


def _clipped_backward(limit, size, g):
    return (jnp.clip(g, -limit, limit) * size,)


_clipped.defvjp(_clipped_forward, _clipped_backward)


@case(V)
def custom_jvp(v):
    return _log1pexp(v), jax.grad(lambda a: _log1pexp(a).sum())(v), jax.jvp(_log1pexp, (v,), (v,))


@case(V)
def custom_vjp(v):
    return _clipped(0.5, v), jax.grad(lambda a: jnp.square(_clipped(0.5, a)).sum())(v)


@case(X)
def custom_vjp_in_scan(x):
    def loss(y):
        def step(c, row):
            return jnp.multiply(_clipped(1.0, c), 0.3) + row, None

        return lax.scan(step, y[0], y)[0].sum()

    return jax.value_and_grad(loss)(x)


@case(X, M[:, :3].repeat(2, 1)[:, :4])
def remat(x, w):
    layer = jax.checkpoint(lambda a: jnp.tanh(a @ w.T) @ w)
    return jax.grad(lambda a: layer(layer(a)).sum())(x)


@case(X, name="remat_saving_dots")
def remat_with_policy(x):
    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    layer = jax.checkpoint(lambda a: jnp.sin(a @ jnp.ones((4, 4))), policy=keep)
    return jax.grad(lambda a: layer(layer(a)).sum())(x)


@case(X)
def remat_saving_names(x):
    from jax.ad_checkpoint import checkpoint_name

    keep = jax.checkpoint_policies.save_only_these_names("hidden")
    layer = jax.checkpoint(lambda a: jnp.cos(checkpoint_name(jnp.sin(a), "hidden")), policy=keep)
    return jax.grad(lambda a: layer(a).sum())(x)


@case(X)
def grad_of_scan(x):
    def loss(y):
        final, rows = lax.scan(lambda c, row: (jnp.tanh(c * row), c.sum()), jnp.ones(4), y)
        return final.sum() + rows.sum()

    return jax.value_and_grad(loss)(x)


@case(X)
def grad_of_scan_of_remat(x):
    step = jax.checkpoint(lambda c, row: (jnp.tanh(c * row), None))
    return jax.grad(lambda y: lax.scan(step, jnp.ones(4), y)[0].sum())(x)


@case(V, True)
def grad_of_cond(v, yes):
    return jax.grad(lambda a: lax.cond(yes, jnp.sin, jnp.cos, a).sum())(v)


@case(X)
def vmap_of_while(x):
    def halve(a):
        return lax.while_loop(lambda c: jnp.abs(c) > 0.1, lambda c: c / 2, a)

    return jax.vmap(jax.vmap(halve))(x)


@case(X, np.array([True, False, True]))
def vmap_of_cond(x, yes):
    return jax.vmap(lambda a, b: lax.cond(b, jnp.sin, jnp.cos, a))(x, yes)


@case(V)
def hessian(v):
    return jax.hessian(lambda a: jnp.prod(jnp.sin(a)))(v)


@case(V)
def jacobians(v):
    def f(a):
        return jnp.outer(a, jnp.sin(a))

    return jax.jacfwd(f)(v), jax.jacrev(f)(v)


@case(V)
def jvp_and_vjp(v):
    out, pull = jax.vjp(jnp.exp, v)
    return jax.jvp(jnp.tanh, (v,), (out,)), pull(v)


@case(V)
def linearized(v):
    out, push = jax.linearize(lambda a: jnp.sin(a) * a, v)
    return out, push(v), jax.linear_transpose(lambda a: 3 * a, v)(v)


@case(V)
def stopped_gradient(v):
    return jax.grad(lambda a: (lax.stop_gradient(a) * a).sum())(v)


@case(V)
def named_call(v):
    return jax.named_call(lambda a: jnp.sin(a) + 1, name="layer")(v)


# --- random numbers -----------------------------------------------------------------------------


@case(jax.random.key(7))
def typed_key(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (3,)), b, jax.random.split(b, 3), jax.random.key_data(a)


@case(jax.random.PRNGKey(7))
def raw_key(key):
    a, b = jax.random.split(key)
    return jax.random.uniform(a, (3,)), b


@case()
def key_made_inside():
    return jax.random.bits(jax.random.key(3), (4,))


@case(jax.random.key(1))
def key_as_loop_variable(key):
    def step(k, i):
        k, now = jax.random.split(k)
        return k, (jax.random.normal(jax.random.fold_in(now, i)), now)

    return lax.scan(step, key, jnp.arange(3))


@case(jax.random.split(jax.random.key(2), 3))
def keys_as_slices(keys):
    return lax.scan(lambda c, k: (c + jax.random.uniform(k), k), 0.0, keys)


@case(jax.random.key(2))
def key_stacks_of_no_iterations(key):
    return lax.scan(lambda k, _: (k, k), key, None, length=0)


@case(jax.random.key(4), True)
def key_through_cond(key, yes):
    return lax.cond(yes, lambda k: jax.random.split(k)[0], lambda k: k, key)


@case(jax.random.key(5, impl="rbg"))
def key_of_another_generator(key):
    return jax.random.bits(key, (2,)), key


@case(jax.random.key(6))
def distributions(key):
    return (
        jax.random.categorical(key, jnp.zeros(5)),
        jax.random.permutation(key, 6),
        jax.random.bernoulli(key, 0.3, (4,)),
    )


# --- types and shapes ---------------------------------------------------------------------------

_DTYPES = (
    *("int8", "int16", "int32", "uint8", "uint16", "uint32", "bfloat16", "float16", "float32"),
    *("bool", "complex64", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"),
)


def arithmetic(x):
    """Something that every type knows, also in a loop and a branch."""
    y = jnp.where(x == x[0], x, x[::-1])
    z = lax.fori_loop(0, 2, lambda _, c: jnp.concatenate([c[1:], c[:1]]), y)
    return lax.cond(y[0] == z[0], lambda: z, lambda: y), x == y, lax.reshape(x, (2, 2)), x


for _dtype in _DTYPES:
    case(jnp.arange(4).astype(_dtype), name=f"dtype_{_dtype}")(arithmetic)


@case(jnp.arange(6, dtype=jnp.uint8), jnp.arange(6, dtype=jnp.int8))
def mixed_integers(a, b):
    return a + b, a << 1, ~b, a.sum(), b @ b, lax.population_count(a), a // 4, b % 3


@case(jnp.arange(4, dtype=jnp.bfloat16), jnp.arange(4, dtype=jnp.float16))
def mixed_floats(a, b):
    return a + b, a @ a, jnp.tanh(b), a.astype(jnp.float16) * b


@case(jnp.array([1 + 2j, -3j], jnp.complex64))
def complex_numbers(z):
    return z * z.conj(), jnp.abs(z), jnp.exp(z), jax.grad(lambda w: jnp.abs(w).sum())(z)


@case(np.zeros((0, 3), np.float32), np.zeros((3, 0), np.int32))
def zero_sized(a, b):
    return a, a.sum(), a.T @ a, b + 1, jnp.concatenate([a, a]), lax.map(lambda r: r * 2, a)


@case(1, 2.5, True, 3j)
def python_numbers(i, f, b, c):
    return i + 1, f * i, ~jnp.asarray(b), c * f, jnp.where(b, i, f)


@case(np.float32(2), np.int32(3), np.bool_(True))
def numpy_scalars(f, i, b):
    return f**i, jnp.logical_not(b)


@case()
def no_inputs():
    return jnp.arange(3) * 2, jnp.ones((2, 2))


@case(V)
def no_outputs(v):
    jnp.sin(v)


@case(V, name="empty_tuple")
def _empty_tuple(v):
    return ()


@case(V, X)
def outputs_that_are_inputs(v, x):
    return x, v, x, [v]


@case(V)
def outputs_used_twice(v):
    w = v + 1
    return w, w, {"again": w}


@case(V)
def literal_outputs(v):
    return 3, v, 2.5, True, jnp.float32(4), np.arange(2)


@case(V)
def closed_over_constants(v):
    return v + jnp.asarray(V) * np.array([1, 2, 3], np.float32), BIG.sum() + BIG, jnp.asarray(BIG)


@case(V)
def constants_in_loop(v):
    return lax.fori_loop(0, 3, lambda i, c: c * V + jnp.asarray([1.0, 2.0, 3.0])[i], v)


# --- pytrees ------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dc.dataclass
class Layer:
    w: Any
    b: Any
    name: str


@jax.tree_util.register_pytree_node_class
class Boxed:
    def __init__(self, content: Any, label: str):
        self.content, self.label = content, label

    def tree_flatten(self) -> tuple[tuple[Any, ...], str]:
        return (self.content,), self.label

    @classmethod
    def tree_unflatten(cls, label: str, children: tuple[Any, ...]) -> Boxed:
        return cls(*children, label)


@case({3: V, 1: [X, None]}, Pair(V, None), Layer(V, None, "first"), Boxed((V, {}), "box"))
def any_pytree(tree, pair, layer, boxed):
    doubled = jax.tree.map(lambda a: a * 2, (tree, pair, layer, boxed))
    return {5: doubled, 0: pair.first + layer.w}, Layer(layer.w, boxed.content[0], layer.name)


@case({"w": M, "b": V}, X)
def adam_step(params, x):
    def loss(p):
        return ((x.T @ p["w"] + p["b"]) ** 2).mean()

    adam = optax.adam(1e-2)
    value, grads = jax.value_and_grad(loss)(params)
    updates, state = adam.update(grads, adam.init(params), params)
    return value, optax.apply_updates(params, updates), state


# --- linear algebra, transforms, data movement --------------------------------------------------


@case(M)
def cholesky_and_solves(m):
    lower = jnp.linalg.cholesky(m)
    y = lax.linalg.triangular_solve(lower, V[:, None], left_side=True, lower=True)
    return lower, y, jnp.linalg.solve(m, V), jnp.linalg.inv(m), jnp.linalg.det(m)


@case(M)
def decompositions(m):
    return jnp.linalg.svd(m), jnp.linalg.eigh(m), jnp.linalg.qr(m), jnp.linalg.norm(m, 2)


@case(M)
def grad_of_solve(m):
    return jax.grad(lambda a: jnp.linalg.solve(a, V).sum() + jnp.linalg.slogdet(a)[1])(m)


@case(M)
def conjugate_gradients(m):
    return jax.scipy.sparse.linalg.cg(m, V, maxiter=3)[0]


@case(V)
def root_finding(v):
    def bisect(f, guess):
        return lax.fori_loop(0, 20, lambda _, x: x - f(x) / 3, guess)

    def solve(_, y):
        return y / 3

    return jax.grad(lambda a: lax.custom_root(lambda x: 3 * x - a.sum(), 0.0, bisect, solve))(v)


@case(X)
def fourier(x):
    return jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(x)


@case(X)
def sorts(x):
    y = jnp.sin(x * 9)
    return jnp.sort(y), jnp.argsort(y), lax.top_k(y, 2), jnp.unique(y > 0, size=2), jnp.median(y)


@case(X, np.array([2, 0]))
def gathers_and_scatters(x, at):
    return x[at], x.at[at].add(1), x.at[:, at].mul(2), jnp.take_along_axis(x, at[:, None], 0)


@case(X, np.int32(1))
def dynamic_slices(x, at):
    return lax.dynamic_slice(x, (at, 0), (2, 2)), lax.dynamic_update_slice(x, x[:1] * 0, (at, at))


@case(X)
def windows_and_cumulation(x):
    return (
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
        jnp.cumsum(x, 1),
        jnp.cumprod(x),
        lax.cumlogsumexp(x, axis=0),
        jax.grad(lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (1, 1), "VALID").sum())(x),
    )


@case(X)
def reductions(x):
    return (
        jnp.argmax(x, 1), x.max(0), jnp.prod(x), jnp.any(x > 0), jnp.var(x),
        lax.reduce(x, np.float32(0), lambda a, b: a * b + 1, (0,)),
        jax.nn.logsumexp(x),
    )  # fmt: skip


@case(X)
def einsums(x):
    return jnp.einsum("ij,kj->ik", x, x), jnp.tensordot(x, x, 2), jnp.kron(x, x)


@case(V)
def special_functions(v):
    return (
        lax.erf(v),
        lax.lgamma(v + 2),
        lax.digamma(v + 2),
        jax.scipy.special.betainc(1.0, 2.0, 0.3),
    )


# --- convolutions -------------------------------------------------------------------------------


def _conv(x, w, **options):
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


@case(IMAGE, FILTERS)
def convolutions(x, w):
    return (
        _conv(x, w),
        _conv(x, w, window_strides=(2, 1), padding="VALID"),
        _conv(x, w, rhs_dilation=(2, 2)),
        _conv(x, w, lhs_dilation=(2, 2), padding=((1, 1), (0, 2))),
        _conv(x, w[:, :, :1], feature_group_count=2),
        lax.conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (1, 1), "SAME"),
        lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    )


@case(IMAGE, FILTERS)
def gradients_of_convolutions(x, w):
    return jax.grad(lambda a, b: (_conv(a, b) ** 2).sum(), argnums=(0, 1))(x, w)


@case(IMAGE, FILTERS, exact=False)
def training_a_convolution_in_a_loop(x, w):
    def step(b, _):
        value, g = jax.value_and_grad(lambda a: (jnp.tanh(_conv(x, a)) ** 2).mean())(b)
        return b - 0.1 * g, value

    return lax.scan(step, w, None, length=3)


# --- primitives that nobody here has heard of -----------------------------------------------------


def _unknown_primitive(name: str, multiple: bool) -> jaxpr.Primitive:
    primitive = jaxpr.Primitive(name)
    primitive.multiple_results = multiple

    def meaning(x, *, times):
        y = x * times + 1
        return [y, y.sum()] if multiple else y

    def avals(x, *, times):
        del times
        whole = jaxpr.ShapedArray(x.shape, x.dtype)
        return [whole, jaxpr.ShapedArray((), x.dtype)] if multiple else whole

    primitive.def_abstract_eval(avals)
    jaxpr.mlir.register_lowering(
        primitive, jaxpr.mlir.lower_fun(meaning, multiple_results=multiple)
    )
    return primitive


_one_result = _unknown_primitive("never_heard_of", False)
_two_results = _unknown_primitive("never_heard_of_either", True)


@case(V)
def unknown_primitives(v):
    a = _one_result.bind(v, times=3)
    b, total = _two_results.bind(a, times=2)
    looped = lax.fori_loop(0, 2, lambda _, c: _one_result.bind(c, times=2), b)
    return (
        a,
        total,
        lax.cond(total > 0, lambda c: _two_results.bind(c, times=1), lambda c: [c, total], looped),
    )


@case(V)
def pure_callbacks(v):
    out = jax.ShapeDtypeStruct(v.shape, v.dtype)

    def host(a):
        return np.asarray(a) * 2

    once = jax.pure_callback(host, out, v)
    return lax.fori_loop(0, 2, lambda _, c: jax.pure_callback(host, out, c), once)


# --- the contract ---------------------------------------------------------------------------------


@functools.cache
def wanted(row: Case) -> Any:
    return jax.jit(row.fn)(*row.args)


@pytest.mark.sampled(4, 50)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_plain(row: Case, engine: str) -> None:
    run = ipu.compile(row.fn, engine=engine)
    same(run(*row.args), wanted(row), exact=row.exact)


@pytest.mark.sampled(4, 20)
@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_scattered(row: Case) -> None:
    use_ipus(2)
    for engine in ("fused", "replay"):
        run = ipu.compile(scattered(row.fn), engine=engine)
        same(run(*row.args), wanted(row), exact=False)


# --- how compiled functions are called ------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_static_and_keyword_arguments(engine: str) -> None:
    traces: list[Any] = []

    def fn(x, power, label, *, scale, shift=0.0):
        traces.append((power, label))
        return x**power * scale + shift

    run = ipu.compile(fn, static_argnums=(1, -1), engine=engine)
    jitted = jax.jit(fn, static_argnums=(1, 2))
    for arguments in [(V, 2, Pair("a", 1)), (V, 3, Pair("a", 1)), (V, 2, frozenset({1}))]:
        same(run(*arguments, scale=V), jitted(*arguments, scale=V))
        same(run(*arguments, scale=V, shift=1.0), jitted(*arguments, scale=V, shift=1.0))
    before = len(traces)
    run(V, 2, Pair("a", 1), scale=V)
    assert len(traces) == before


@pytest.mark.sampled(5)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("looped", [False, True])
def test_donated_arguments_are_taken(engine: str, shards: int, looped: bool) -> None:
    use_ipus(shards)

    def fn(state, x):
        with ipu.scopes.ipu_shard(0):
            y = state["a"] + x
        with ipu.scopes.ipu_shard(shards - 1):
            if looped:
                y = ipu.loops.repeat(3, lambda c: c * 2, [y])
            return {"a": y, "b": state["b"]}

    run = ipu.compile(fn, donate_argnums=0, engine=engine)
    state = {"a": jnp.arange(3.0), "b": jnp.ones(2)}
    x = jnp.ones(3)
    wanted = jax.jit(fn)(state, x)
    for _ in range(3):  # the first call, and calls of what it compiled
        given = jax.tree.map(jnp.copy, state)
        same(run(given, x), wanted)
        assert all(leaf.is_deleted() for leaf in given.values())
        assert not x.is_deleted()


def test_numpy_arguments_may_be_donated() -> None:
    run = ipu.compile(lambda x: x + 1, donate_argnums=0, engine="replay")
    same(run(V), jnp.asarray(V) + 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap, jax.hessian, jax.checkpoint])
def test_transformed_from_outside(transform: Callable[..., Any]) -> None:
    def fn(x):
        with ipu.scopes.ipu_shard(0):
            y = jnp.sin(x)
        with ipu.scopes.ipu_shard(1):
            return (y * y).sum()

    use_ipus(2)
    argument = X if transform is jax.vmap else V
    wanted_ = jax.jit(transform(fn))(argument)
    same(jax.jit(transform(ipu.compile(fn)))(argument), wanted_)
    same(ipu.compile(transform(ipu.compile(fn)))(argument), wanted_, exact=False)


def test_every_kind_of_callable() -> None:
    class Scaler:
        factor = 3.0

        @ipu.compile
        def method(self, x):
            return x * 3.0

        def __call__(self, x):
            return x * self.factor

    scaler = jax.tree_util.Partial(lambda a, b: a * b, jnp.float32(2))
    same(ipu.compile(Scaler())(V), jnp.asarray(V) * 3)
    same(ipu.compile(scaler)(V), jnp.asarray(V) * 2)
    same(ipu.compile(functools.partial(jnp.multiply, 2.0))(V), jnp.asarray(V) * 2)
    with pytest.raises(TypeError, match="Scaler"):
        Scaler().method(V)  # `self` is no array, as under jax.jit


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_effects_happen_once_and_in_order(engine: str, capfd: pytest.CaptureFixture[str]) -> None:
    use_ipus(2)
    seen: list[Any] = []

    def note(value):
        seen.append(value.tolist())

    def fn(x):
        with ipu.scopes.ipu_shard(0):
            jax.experimental.io_callback(note, None, x, ordered=True)
            y = x + 1
        with ipu.scopes.ipu_shard(1):
            jax.experimental.io_callback(note, None, y * 2, ordered=True)
            jax.debug.print("y is {}", y)
        with ipu.scopes.ipu_shard(0):
            jax.experimental.io_callback(note, None, y, ordered=True)
        return lax.fori_loop(0, 2, lambda i, c: _noted(note, c), y)

    run = ipu.compile(fn, engine=engine)
    for _ in range(2):
        seen.clear()
        result = run(jnp.float32(1))
        jax.effects_barrier()
        assert seen == [1.0, 4.0, 2.0, 2.0, 3.0]
        assert float(result) == 4.0
    assert capfd.readouterr().out.count("y is 2.0") == 2


def _noted(note, value):
    jax.experimental.io_callback(note, None, value, ordered=True)
    return value + 1


def test_results_do_not_change_with_the_callers_array() -> None:
    argument = np.zeros(3, np.float32)
    result = ipu.compile(lambda x: (x, x + 1), engine="replay")(argument)
    assert isinstance(result[0], jax.Array)


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_what_vmap_does_not_know_runs_on_every_replica(engine: str) -> None:
    use_ipus(4)

    def fn(v):
        own = v + ipu.replication_ops.replication_index().astype(v.dtype)
        once = _one_result.bind(own, times=2)
        out = jax.ShapeDtypeStruct(v.shape, v.dtype)
        twice = jax.pure_callback(lambda a: np.asarray(a) * 2, out, once)
        return ipu.cross_replica_ops.cross_replica_sum(twice)

    wanted_ = sum(((V + replica) * 2 + 1) * 2 for replica in range(4))
    same(ipu.compile(fn, engine=engine)(V), jnp.asarray(wanted_))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_donated_argument_that_an_inner_loop_starts_from(engine: str) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(i) for i in range(6)])

    def fn(x):
        def inner():
            return ipu.loops.repeat(3, lambda d, e: d + e, [x], infeed)

        return ipu.loops.repeat(2, lambda c: c + inner(), [jnp.zeros(())])

    run = ipu.compile(fn, engine=engine, donate_argnums=0)
    assert float(run(jnp.float32(1))) == 2 + sum(range(6))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_loop_whose_condition_was_computed_before_it(engine: str) -> None:
    use_ipus(2)

    def fn(x):
        with ipu.scopes.ipu_shard(0):
            go = x.sum() > 100

        def body(c):
            with ipu.scopes.ipu_shard(0):
                a = c * 2
            with ipu.scopes.ipu_shard(1):
                return a + 1

        return lax.while_loop(lambda c: go, body, x)

    same(ipu.compile(fn, engine=engine)(V), jnp.asarray(V))
