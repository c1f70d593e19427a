"""Operations of a user's own: what traces, transformations and the compiler make of them."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowering import ir, lower
from lowering.ground import LoweringError, Options
from lowering.ops import UserOp, call_for_each_example, user_callback_p, user_op_p

OP = UserOp("twice", "target", "", (((3,), "float32"), ((), "int32")))
SILENT = dc.replace(OP, results=())
X = jnp.zeros(3)


def on_ipu(x, op=OP):
    return user_op_p.bind(x, op=op)


def on_host(x, op=OP):
    return user_callback_p.bind(x, op=op)


def steps(function, *args):
    program = lower(jax.make_jaxpr(function)(*args), Options(num_ipus=1, name="test"))
    return [node for node in ir.walk_nodes(program.body) if not isinstance(node, ir.Copy)]


def kinds(function, *args):
    return [type(node).__name__ for node in steps(function, *args)]


def test_work_of_the_ipu_is_in_a_kernel_and_that_of_the_host_between_two():
    assert kinds(lambda x: on_ipu(x + 1)[0] + 1, X) == ["Execute"]
    assert kinds(lambda x: on_host(x + 1)[0] + 1, X) == ["Execute", "HostCall", "Execute"]
    (call,) = [node for node in steps(lambda x: on_host(x), X) if isinstance(node, ir.HostCall)]
    assert call.name == "twice"
    assert len(call.writes) == 2


def test_work_of_the_host_leaves_calls_and_stays_in_control_flow():
    assert kinds(lambda x: jax.jit(lambda x: on_host(x + 1)[0])(x), X) == ["Execute", "HostCall"]

    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: on_host(x)[0], x)

    assert kinds(loop, X) == ["Execute"]


def test_a_call_without_results_is_not_dropped():
    def silent(x):
        on_host(x, SILENT)
        on_ipu(x, SILENT)
        on_ipu(x)  # this one is
        return x + 1

    names = [
        eqn.primitive.name
        for node in steps(silent, X)
        if isinstance(node, (ir.Execute, ir.HostCall))
        for eqn in node.kernel.jaxpr.jaxpr.eqns
    ]
    assert sorted(names) == ["add", "ipu_user_callback", "ipu_user_op"]


def test_vmap_says_which_operands_have_examples():
    def two(x, y):
        return user_op_p.bind(x, y, op=OP)

    inner = jax.vmap(two, in_axes=(1, None))
    jaxpr = jax.make_jaxpr(jax.vmap(inner, in_axes=(None, 0)))(jnp.zeros((3, 4)), jnp.zeros((5, 2)))
    (eqn,) = [eqn for eqn in jaxpr.jaxpr.eqns if eqn.primitive is user_op_p]
    assert eqn.params["op"].examples == ((5, (False, True)), (4, (True, False)))
    assert [var.aval.shape for var in eqn.outvars] == [(5, 4, 3), (5, 4)]


def test_one_by_one():
    op = dc.replace(OP, examples=((5, (False, True)), (4, (True, False))))
    x, y = np.arange(12.0).reshape(4, 3), np.arange(10.0).reshape(5, 2)
    total, product = call_for_each_example(lambda x, y: (x + y[0], x[0] * y[1]), (x, y), op)
    np.testing.assert_allclose(total, x[None] + y[:, None, :1])
    np.testing.assert_allclose(product, x[None, :, 0] * y[:, None, 1])


def test_derivatives():
    with pytest.raises(LoweringError, match="was itself differentiated"):
        jax.grad(lambda x: on_ipu(x)[0].sum())(X)

    def stopped(x):
        on_ipu(x, SILENT)
        return (x + on_ipu(jax.lax.stop_gradient(x))[0]).sum()

    jaxpr = str(jax.make_jaxpr(jax.grad(stopped))(X))
    assert jaxpr.count("ipu_user_op") >= 1
