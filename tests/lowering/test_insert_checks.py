from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import jaxpr
from lowering.options import Options
from lowering.passes.insert_checks import insert_checks
from tests.lowering.samples import V, jaxpr_text, trace

ALL = Options(catch_invalid=True, catch_division=True, catch_overflow=True)
X = np.array([1.0, 2.0, -1.0], np.float32)
ZERO = np.zeros(3, np.float32)
BIG = np.full(3, 3e38, np.float32)


def fault_of(fn, *args, options=ALL):
    """What a checked function reports: None, or the kind and the operation."""
    args = tuple(map(jnp.asarray, args))
    closed, faults = insert_checks(trace(fn, *args), options, 1)
    if not faults:
        return None
    *outputs, code = jaxpr.run_equations(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    for mine, theirs in zip(outputs, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if int(code) == 0:
        return None
    fault = faults[int(code) - 1]
    assert __file__ in fault.origin
    return fault.kind, fault.primitive


def test_a_division(golden):
    closed, faults = insert_checks(trace(lambda a, b: a / b, V, V), ALL, 1)
    kinds = "\n".join(f"{fault.kind}: {fault.primitive}" for fault in faults)
    golden(jaxpr_text(closed) + kinds)


def test_nothing_to_catch_changes_nothing():
    closed = trace(jnp.sin, V)
    assert insert_checks(closed, Options(), 1) == (closed, ())


@pytest.mark.parametrize(
    ("fn", "args", "fault"),
    [
        (lambda a, b: a / b, (X, ZERO), ("division by zero", "div")),
        (lambda a, b: a / b, (ZERO, ZERO), ("invalid", "div")),
        (lambda a, b: a / b, (BIG, X / 9), ("overflow", "div")),
        (lambda a: jnp.log(a), (ZERO,), ("division by zero", "log")),
        (lambda a: jnp.sqrt(a), (X,), ("invalid", "sqrt")),
        (lambda a: a * a, (BIG,), ("overflow", "mul")),
        (lambda a: jnp.exp(a * 100), (X,), ("overflow", "exp")),
        (lambda a: (a * jnp.inf, a + jnp.inf), (X,), None),
        (lambda a: a * jnp.nan + 1, (X,), None),
        (lambda a: (a * 2).astype(jnp.int32) // 3, (X,), None),
    ],
)
def test_faults(fn, args, fault):
    assert fault_of(fn, *args) == fault


@pytest.mark.parametrize("option", ["catch_invalid", "catch_division", "catch_overflow"])
def test_only_what_is_asked_for(option):
    kinds = {"catch_invalid": "invalid", "catch_division": "division by zero"}
    programs = [lambda a: jnp.sqrt(a), lambda a: jnp.log(a * 0), lambda a: a * 3e38 * 3e38]
    options = Options(**{option: True})
    found = [fault_of(program, X, options=options) for program in programs]
    assert {fault[0] for fault in found if fault} == {kinds.get(option, "overflow")}


def divided(c, by):
    return c / by


def divided_in_while(x):
    def body(c):
        return divided(c[0], x * 0), c[1] + 1

    return lax.while_loop(lambda c: c[1] < 2, body, (x, 0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.jit(divided)(x, x * 0),
        lambda x: lax.scan(lambda c, e: (divided(c, e), c), x[0], x * 0)[0],
        lambda x: lax.scan(lambda c, e: (c + 1, divided(e, c)), 0.0, x, reverse=True)[1],
        divided_in_while,
        lambda x: lax.cond(x[0] > 0, lambda: divided(x, x * 0), lambda: x),
        jax.vmap(divided_in_while),
        lambda x: jax.checkpoint(lambda a: divided(a, a * 0))(x),
    ],
    ids=["jit", "scan", "scan's stacks", "while", "cond", "vmap of while", "remat"],
)
def test_faults_come_out_of_bodies(fn):
    assert fault_of(fn, X) == ("division by zero", "div")


def test_the_first_fault_counts():
    assert fault_of(lambda x: jnp.sqrt(x) + jnp.log(x * 0), X) == ("invalid", "sqrt")


def test_branches_not_taken_report_nothing():
    assert fault_of(lambda x: lax.cond(x[0] > 5, lambda: x / (x * 0), lambda: x), X) is None
