from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering.jaxprs import jaxpr
from lowering.ops import enqueue
from lowering.passes import add_missing_batching_rules
from tests.ipujax.feeding import configure
from tests.lowering.samples import Queue, V, jaxpr_text, trace
from tests.sweep.tables.lax import EXAMPLES

unknown_p = jaxpr.Primitive("unknown")
unknown_p.def_abstract_eval(lambda x: x)
jaxpr.mlir.register_lowering(unknown_p, jaxpr.mlir.lower_fun(lambda x: x * 3, False))


def called(x, method=None):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda a: np.asarray(a) * 2, out, x, vmap_method=method)


def test_unknown_operations_and_callbacks(golden):
    def fn(x):
        y = lax.fori_loop(0, 2, lambda _, c: unknown_p.bind(jnp.sin(c)), x)
        return called(called(y), "expand_dims")

    golden(jaxpr_text(add_missing_batching_rules(trace(fn, V), 2)))


def test_each_replica_has_its_turn():
    closed = add_missing_batching_rules(trace(lambda x: unknown_p.bind(called(x)), V), 4)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    run = jax.vmap(lambda row: jaxpr.run_equations(closed.jaxpr, closed.consts, [row]))
    (got,) = jax.jit(run)(x)
    np.testing.assert_array_equal(got, x * 6)


def test_one_replica_needs_no_turns():
    closed = trace(unknown_p.bind, V)
    assert add_missing_batching_rules(closed, 1) is closed


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sin,
        jnp.linalg.norm,
        jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()),
        lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: enqueue(Queue("q"), [x], None),
        lambda x: jax.debug.print("{}", x),
        lambda x: jax.random.normal(jax.random.key(0), x.shape),
    ],
)
def test_what_vmap_knows_is_left_alone(fn):
    closed = trace(fn, V)
    assert add_missing_batching_rules(closed, 4) is closed


ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)
WEIGHTS = np.arange(60, dtype=np.float32).reshape(3, 4, 5) / 60
SIZES = np.array([2, 3, 3], np.int32)


def window(x, start):
    return lax.reduce_window(x, start, lambda a, b: lax.max(a, b) * 2, (2, 2), (1, 1), "VALID")


PARTLY_VECTORIZED = {
    "ragged_dot": (lax.ragged_dot, (ROWS, WEIGHTS, SIZES)),
    "its gradient": (
        lambda x, w, s: jax.grad(lambda x, w: (lax.ragged_dot(x, w, s) ** 2).sum(), (0, 1))(x, w),
        (ROWS, WEIGHTS, SIZES),
    ),
    "reduce": (
        lambda x, start: lax.reduce(x, start, lambda a, b: lax.max(a, b) * 2, (0,)),
        (ROWS, np.float32(1)),
    ),
    "reduce_window": (window, (ROWS, np.float32(1))),
    "clamp": (lambda x, high: (lax.clamp(1.0, x, high), lax.clamp(-1.0, 5.0, high)), (ROWS, 4.0)),
}


@pytest.mark.parametrize("name", PARTLY_VECTORIZED)
def test_what_vmap_knows_in_part_takes_turns(name, tmp_path):
    """Replicas of one device compute, save and load what JAX vectorizes for some operands only."""
    function, args = PARTLY_VECTORIZED[name]
    configure(4)
    executable = ipu.compile(function).lower(*args).compile()
    executable.save(tmp_path / "saved")
    wanted = jax.jit(function)(*args)
    for run in (executable, ipu.load_executable(tmp_path / "saved")):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6), run(*args), wanted)


@pytest.mark.exhaustive
def test_all_functions_of_lax_can_be_vectorized_or_take_turns():
    """Each operation that examples of JAX's functions make, with all its operands vectorized."""
    for example in EXAMPLES:
        closed = add_missing_batching_rules(jax.make_jaxpr(example.call)(*example.args), 2)
        avals = [aval for aval in closed.in_avals if hasattr(aval, "shape")]
        if not avals or len(avals) < len(closed.in_avals):
            continue
        run = jax.vmap(lambda *args, c=closed: jaxpr.run_equations(c.jaxpr, c.consts, args))
        jax.eval_shape(run, *(jax.ShapeDtypeStruct((2, *a.shape), a.dtype) for a in avals))
