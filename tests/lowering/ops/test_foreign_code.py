"""What compiled code does elsewhere is found at any depth, with the user's line."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from lowering.ops import UserOp, find_actions_outside_compiled_code, user_callback_p, user_op_p

X = jnp.zeros(3)
OP = UserOp("twice", "/lib/a.so:twice", "", (((3,), "float32"),), where="a.py:3")


def prints(x):
    jax.debug.print("{}", x)
    return x


CALLS = {
    "print": prints,
    "debug": lambda x: (jax.debug.callback(print, x), x)[1],
    "io": lambda x: io_callback(np.sin, X, x),
    "pure": lambda x: jax.pure_callback(np.sin, X, x),
}


@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["", "jit", "remat"])
def test_callbacks(function, wrap):
    def looped(x):
        return jax.lax.fori_loop(0, 2, lambda _, x: wrap(function)(x), x)

    ((what, line),) = find_actions_outside_compiled_code(jax.make_jaxpr(looped)(X).jaxpr)
    assert what == "calls Python on the host"
    assert line.startswith(__file__)


@pytest.mark.parametrize("primitive", [user_op_p, user_callback_p])
def test_operations_of_libraries(primitive):
    found = find_actions_outside_compiled_code(
        jax.make_jaxpr(lambda x: primitive.bind(x, op=OP))(X).jaxpr
    )
    assert list(found) == [("calls the custom operation `twice` of /lib/a.so:twice", "a.py:3")]


def test_arithmetic_is_at_home():
    assert not list(
        find_actions_outside_compiled_code(
            jax.make_jaxpr(lambda x: jnp.linalg.norm(x) + 1)(X).jaxpr
        )
    )
