from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.compute_on import compute_on
from jax.experimental.xla_metadata import set_xla_metadata

from lowering.jaxprs import jaxpr, structure_key
from tests.lowering.samples import V, trace


def key(fn, *args):
    return structure_key(trace(fn, *(args or (V,))))


def within(context, fn=jnp.sin):
    def function(x):
        with context:
            return fn(x)

    return function


def own(name):
    primitive = jaxpr.Primitive(name)
    primitive.def_abstract_eval(lambda x: x)
    return primitive.bind


def with_rule(rule):
    function = jax.custom_jvp(jnp.sin)
    function.defjvp(rule)
    return function


def with_backward(backward):
    function = jax.custom_vjp(jnp.sin)
    function.defvjp(lambda x: (jnp.sin(x), x), backward)
    return function


@dc.dataclass(frozen=True)
class Note:
    """Equal to every other note, as what a user's callback carries may be."""

    seen: list[float] = dc.field(default_factory=list, compare=False)

    def __call__(self, value):
        self.seen.append(float(value[0]))


def noting(note):
    return lambda x: jax.experimental.io_callback(note, None, x)


EQUAL = {
    "another line": (lambda x: jnp.sin(x) * 2, lambda y: jnp.sin(y) * 2),
    "a scope": (jnp.sin, within(jax.named_scope("one"))),
    "the rule of a derivative": (
        with_rule(lambda p, t: (p[0], t[0])),
        with_rule(lambda p, t: (p[0], 2 * t[0])),
    ),
    "the backward pass": (with_backward(lambda x, g: (g,)), with_backward(lambda x, g: (2 * g,))),
    "bodies": (
        lambda x: lax.fori_loop(0, 2, lambda _, c: jnp.sin(c), x),
        lambda x: lax.fori_loop(0, 2, lambda _, c: jnp.sin(c), x),
    ),
    "nans of the same bits": (lambda x: x + np.float32(np.nan), lambda x: x + np.float32(np.nan)),
}

DIFFERENT = {
    "an operation": (jnp.sin, jnp.cos),
    "who reads what": (lambda x: (x + 1) * x, lambda x: (x + 1) * (x + 1)),
    "random bits": (
        within(jax.threefry_partitionable(True), jnp.exp),
        within(jax.threefry_partitionable(False), jnp.exp),
    ),
    "where to compute": (jnp.sin, within(compute_on("device_host"))),
    "metadata": (within(set_xla_metadata(a=1)), within(set_xla_metadata(a=2))),
    "metadata inside a loop": (
        lambda x: lax.fori_loop(0, 2, lambda _, c: within(set_xla_metadata(a=1))(c), x),
        lambda x: lax.fori_loop(0, 2, lambda _, c: within(set_xla_metadata(a=2))(c), x),
    ),
    "precision": (
        within(jax.default_matmul_precision("float32"), lambda x: x @ x),
        within(jax.default_matmul_precision("bfloat16"), lambda x: x @ x),
    ),
    "the sign of zero": (lambda x: x + np.float32(0.0), lambda x: x + np.float32(-0.0)),
    "the bits of a nan": (
        lambda x: x + np.uint32(0x7FC00000).view(np.float32),
        lambda x: x + np.uint32(0x7FC00001).view(np.float32),
    ),
    "the type of a literal": (lambda x: 1.0, lambda x: np.float32(1)),
    "functions of the host": (
        lambda x: jax.debug.callback(lambda v: None, x),
        lambda x: jax.debug.callback(lambda v: None, x),
    ),
    "callbacks that say they are equal": (noting(Note()), noting(Note())),
    "a text": (lambda x: jax.debug.print("{}", x), lambda x: jax.debug.print(" {}", x)),
    "order": (
        lambda x: jax.debug.print("{}", x),
        lambda x: jax.debug.print("{}", x, ordered=True),
    ),
    "primitives of one name": (own("mine"), own("mine")),
    "constants": (lambda x: x + np.arange(3.0), lambda x: x + np.arange(3.0) * 2),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_what_computes_the_same_has_the_same_key(pair):
    assert key(pair[0]) == key(pair[1])


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_what_computes_something_else_has_another_key(pair):
    assert key(pair[0]) != key(pair[1])


def test_weak_types_of_arguments_differ():
    weak = jax.ShapeDtypeStruct((3,), jnp.float32, weak_type=True)
    assert key(jnp.sin, weak) != key(jnp.sin, V)


def test_parameters_that_are_equal_and_not_the_same():
    scale_p = jaxpr.Primitive("scale")
    scale_p.def_abstract_eval(lambda x, *, by: x)
    keys = [key(lambda x, by=by: scale_p.bind(x, by=by)) for by in (0.0, -0.0, 0, False, 0j)]
    keys += [key(lambda x, by=by: scale_p.bind(x, by=by)) for by in ((0.0,), (-0.0,), (0,))]
    keys += [key(lambda x, by=by: scale_p.bind(x, by=by)) for by in (np.float32(0), np.int32(0))]
    assert len(set(keys)) == len(keys)
