from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.jaxprs import (
    count_operations,
    count_single_core_operations,
    dtype_name,
    jaxpr,
    signature_of,
    user_frames_key,
)
from lowering.ops import enqueue
from tests.lowering.samples import Queue, S, V, W, shard, trace


def test_call_body_knows_every_call():
    @jax.custom_vjp
    def f(x):
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda _, g: (g,))
    functions = [jax.jit(jnp.sin), jax.checkpoint(jnp.sin), f]
    for fn in functions:
        (eqn,) = trace(fn, V).jaxpr.eqns
        body = jaxpr.body_of_call(eqn)
        assert body is not None
        assert [e.primitive.name for e in body.jaxpr.eqns] in (["sin"], ["mul"])
    (loop,) = trace(lambda x: lax.scan(lambda c, _: (c, None), x, None, length=2), V).jaxpr.eqns
    assert jaxpr.body_of_call(loop) is None


def test_sub_jaxprs_of_any_parameter():
    eqns = trace(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x), S).jaxpr.eqns
    assert len(list(jaxpr.sub_jaxprs(eqns[-1]))) == 2
    assert list(jaxpr.sub_jaxprs(eqns[0])) == []


def test_map_sub_jaxprs_keeps_named_tuples():
    def solve(b):
        return lax.custom_linear_solve(lambda x: x * 2, b, lambda matvec, b: b / 2)

    (eqn,) = (e for e in trace(solve, V).jaxpr.eqns if e.primitive.name == "custom_linear_solve")
    mapped = jaxpr.map_sub_jaxprs(eqn, lambda body: body)
    assert type(mapped.params["jaxprs"]) is type(eqn.params["jaxprs"])
    assert mapped.params["jaxprs"] == eqn.params["jaxprs"]


def test_map_sub_jaxprs_keeps_the_signature():
    closed = trace(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0], V)

    def doubled(body):
        return jaxpr.trace_flat(
            lambda *xs: jaxpr.run_equations(body.jaxpr, body.consts, [x * 2 for x in xs]),
            body.in_avals,
        )

    (eqn,) = closed.jaxpr.eqns
    changed = jaxpr.map_sub_jaxprs(eqn, doubled)
    x = jnp.arange(3.0)
    (got,) = jaxpr.bind_equation(changed, [x])
    np.testing.assert_allclose(got, jnp.sin(2 * jnp.sin(2 * x)), rtol=1e-6)


def test_a_scope_named_as_a_transformation_is_no_transformation():
    def scoped(x):
        with jax.named_scope("jvp"), jax.named_scope("a"):
            return jnp.sin(x)

    def differentiated(x):
        return jax.jvp(jax.named_scope("a")(jnp.sin), [x], [x])[0]

    stacks = [jaxpr.name_stack(trace(fn, S).jaxpr.eqns[0]) for fn in (scoped, differentiated)]
    assert stacks == ["jvp/a", "jvp(a)"]


def test_bind_equation_keeps_name_stack_and_line():
    def fn(x):
        with jax.named_scope("inner"):
            return jnp.sin(x)

    (eqn,) = trace(fn, V).jaxpr.eqns

    def again(x):
        with jax.named_scope("outer"):
            return jaxpr.bind_equation(eqn, [x])

    (copy,) = trace(again, V).jaxpr.eqns
    assert jaxpr.name_stack(copy) == "outer/inner"
    assert jaxpr.user_line(copy) == jaxpr.user_line(eqn)
    assert jaxpr.user_line(eqn).startswith(f"{__file__}:")
    assert jaxpr.user_line(eqn).endswith("fn)")


def test_forward_and_backward_share_their_frames():
    def fn(x):
        y = jnp.sin(x)
        return (y * y).sum()

    eqns = trace(jax.grad(fn), V).jaxpr.eqns
    forward = next(e for e in eqns if e.primitive.name == "cos")
    backward = [e for e in eqns if "transpose" in jaxpr.name_stack(e)]
    assert user_frames_key(forward) in {user_frames_key(e) for e in backward}


@pytest.mark.parametrize(
    ("dtype", "name"), [(jnp.float32, "float32"), (jnp.bool_, "bool"), (jnp.bfloat16, "bfloat16")]
)
def test_dtype_names(dtype, name):
    assert dtype_name(jaxpr.ShapedArray((), dtype)) == name


def test_signatures_tell_shapes_and_dtypes_apart():
    types = [jax.typeof(jnp.ones((2, 3))), jax.typeof(jax.random.key(0))]
    assert signature_of(types) == (((2, 3), "float32"), ((), "key<fry>"))


def test_hoisted_constants():
    table = jnp.arange(3.0)
    closed, consts = jaxpr.constants_to_arguments(trace(lambda x: x + table, V))
    assert closed.consts == []
    (got,) = jaxpr.run_equations(closed.jaxpr, (), [*consts, jnp.ones(3)])
    assert got.tolist() == [1.0, 2.0, 3.0]


def test_ordered_effects():
    def fn(x):
        enqueue(Queue("q"), [x], None)
        jax.debug.print("{}", x)
        jax.debug.print("{}", x, ordered=True)
        return x + 1

    ordered = [jaxpr.is_ordered(eqn) for eqn in trace(fn, S).jaxpr.eqns]
    assert ordered == [True, False, True, False]


def test_operations_count_products_exactly():
    counted = count_operations(trace(lambda a, b: jnp.tanh(a @ b), W, W).jaxpr)
    assert counted == 2 * 27 + 9

    def looped(a):
        return lax.scan(lambda c, _: (c @ c, None), a, None, length=5)[0]

    assert count_operations(trace(looped, W).jaxpr) == 5 * 54


def test_operations_of_one_core_are_small_products_and_convolutions():
    def several(small, batch, large, images, filters):
        looped = lax.scan(lambda c, _: (c @ c, None), small, None, length=5)[0]
        convolved = lax.conv(images, filters, (1, 1), "VALID")
        return looped, batch @ batch, large @ large, convolved, jnp.tanh(large)

    shapes = (W.shape, (1024, 32, 32), (256, 256), (1, 2, 8, 8), (4, 2, 3, 3))
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    counted = count_single_core_operations(trace(several, *structs).jaxpr)
    assert counted == 5 * 54 + 1024 * 2 * 32**3 + 2 * 4 * 6 * 6 * 2 * 9


def test_scopes_can_be_added():
    def fn(x):
        with shard(1):
            return jnp.sin(x)

    (eqn,) = trace(fn, V).jaxpr.eqns
    assert jaxpr.name_stack(jaxpr.add_innermost_scope(eqn, "more")) == "ipu_shard[1]/more"
