"""What `insert_checks` reports, next to looking at each operation by itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from lowering import ir, lower
from lowering.ground import Options
from lowering.jaxprs import jaxpr
from lowering.ops import POLES
from lowering.passes import inline_calls, insert_checks
from lowering.passes.insert_checks import _MOVES, _OVERFLOWING_POLES
from tests.lowering.samples import trace

ALL = {"catch_invalid": True, "catch_division": True, "catch_overflow": True}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e38, -3e38, 1e-30, 1e20, np.inf, -np.inf, np.nan]


def first_fault(closed, operands, catch):
    """The first operation that did what it must not, by the definitions: run one by one."""
    found = []

    def run(eqn, values):
        ins = [np.asarray(x) for x in values if jnp.issubdtype(x.dtype, jnp.inexact)]
        outputs = jaxpr.bind_equation(eqn, values)
        if eqn.primitive.name not in _MOVES:
            for out in map(np.asarray, outputs):
                kinds = faults_of(eqn.primitive.name, [np.asarray(x) for x in values], ins, out)
                found.extend((k, eqn.primitive.name) for k in kinds if catch[k])
        return outputs

    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, operands, strict=True))
    for eqn in closed.jaxpr.eqns:
        atoms = eqn.invars
        read = [jnp.asarray(a.val) if isinstance(a, jaxpr.Literal) else values[a] for a in atoms]
        values.update(zip(eqn.outvars, run(eqn, read), strict=True))
    return found[0] if found else None


def faults_of(name, values, ins, out):
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        converted = name == "convert_element_type" and any(np.isnan(x).any() for x in ins)
        return ["invalid"] if converted else []
    infinite = np.isinf(out).any() and all(np.isfinite(x).all() for x in ins)
    pole = name in POLES and infinite
    if name == "div":
        pole = ((values[1] == 0) & (values[0] != 0) & np.isfinite(values[0])).any()
    elif name in _OVERFLOWING_POLES:
        pole = infinite and (np.isinf(out) & (values[0] == 0)).any()
    kinds = []
    if np.isnan(out).any() and not any(np.isnan(x).any() for x in ins):
        kinds.append("invalid")
    if pole:
        kinds.append("division by zero")
    if infinite and not pole and (name not in POLES or name in _OVERFLOWING_POLES):
        kinds.append("overflow")
    return kinds


def arithmetic(x, y):
    return x * 0.5 + y / 4, (x - 1e20) * (y + 1) / x, 1 / y - x / 0.0, 3.0 / (x * 1e30)


def bounded(x, y):
    return jnp.tanh(x) * jnp.exp(y), jax.nn.sigmoid(x) / y, lax.erf(x) - lax.erfc(y), jnp.sign(x)


def moved(x, y):
    both = jnp.concatenate([x * y, -x])
    return both[::-1] - 1e38, jnp.where(x > 0, both[:4], y) * y, jnp.abs(both).reshape(2, 4) * 2


def mixed(x, y):
    x16 = x.astype(jnp.float16)
    wide = (x16 * x16).astype(jnp.float32) + y
    return wide, wide.astype(jnp.int32), jnp.arange(4) * y, jnp.sqrt(x) - jnp.log(y)


def powers(x, y):
    return x**3, x**-2, lax.pow(x, y), jnp.square(y) - y, jnp.expm1(x) - jnp.exp2(y)


def reduced(x, y):
    total = jnp.sum(x) * jnp.sum(y)
    return x @ y, jax.nn.softmax(x - total), jnp.cumsum(y), jnp.prod(x), jnp.max(x) * y


def complex_numbers(x, y):
    z = lax.complex(x, y)
    # Not z * z: where both its products overflow, inf - inf is NaN only without a fused subtract.
    return jnp.abs(z * y), jnp.exp(z), -z + 1


def empty(x, y):
    return jnp.sum(x[:0] / 0), jnp.concatenate([x[:0], y]) * 2, x[:0] / y[:0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fn", [arithmetic, bounded, moved, mixed, powers, reduced, complex_numbers, empty]
)
@pytest.mark.parametrize("only", [None, "invalid", "division by zero", "overflow"])
def test_the_first_fault_is_that_of_the_definitions(fn, only):
    names = dict(zip(ALL, ("invalid", "division by zero", "overflow"), strict=True))
    caught = {name: only in (None, kind) for name, kind in names.items()}
    catch = {kind: only in (None, kind) for kind in names.values()}
    x = np.ones(4, np.float32)
    closed = inline_calls(trace(fn, x, x))
    checked, faults = insert_checks(closed, Options(**caught), 1)
    run = jax.jit(lambda *args: jaxpr.run_equations(checked.jaxpr, checked.consts, args)[-1])
    random = np.random.default_rng(0)
    for size in (1, 1, 1, 1, 2, 4) * 10:
        operands = random.uniform(0.5, 2, (2, 4)).astype(np.float32)
        operands[random.integers(2, size=size), random.integers(4, size=size)] = random.choice(
            SPECIAL, size
        )
        code = int(run(*operands)) if faults else 0
        found = (faults[code - 1].kind, faults[code - 1].primitive) if code else None
        wanted = first_fault(closed, list(map(jnp.asarray, operands)), catch)
        assert found == wanted, operands


def reductions(closed):
    return sum(eqn.primitive.name == "reduce_or" for eqn in closed.jaxpr.eqns)


def test_values_of_one_shape_are_looked_at_together():
    def fn(x):
        for _ in range(15):
            x = jnp.sin(x)
        return x

    (closed, faults) = insert_checks(trace(fn, np.ones(4, np.float32)), Options(**ALL), 1)
    assert len(faults) == 30  # each may be NaN or, for all that is known, too large
    # Sixteen values with two bits each are a word; two more read the table of faults.
    assert reductions(closed) == 1 + 2


def test_what_cannot_go_wrong_is_not_watched():
    def fn(x):
        return jnp.tanh(-x[::-1]).reshape(2, 2) * 0.5 + 1, jnp.arange(4) / 2

    closed = inline_calls(trace(fn, np.ones(4, np.float32)))
    assert insert_checks(closed, Options(**ALL), 1) == (closed, ())


def test_arrays_are_looked_at_where_they_are():
    """A word of values of two IPUs would bring one's elements to the other."""

    def fn(a, b, rate):
        with ipu.scopes.ipu_shard(0):
            x = jnp.sin(a)
            total = jnp.sum(x)
        with ipu.scopes.ipu_shard(1):
            y = jnp.sin(b) * total
        return [v - rate * jnp.cos(v) * v for v in (x, y)]  # where they are, unmarked

    x = np.ones(4, np.float32)
    closed = trace(fn, x, x, np.float32(1))
    plain, checked = (
        lower(closed, Options(num_ipus=2, **caught)) for caught in ({}, dict.fromkeys(ALL, True))
    )
    assert arrays_between_ipus(plain) == arrays_between_ipus(checked) == 0


def arrays_between_ipus(program):
    copies = [node for node in ir.walk_nodes(program.body) if isinstance(node, ir.Copy)]
    between = [c for c in copies if min(c.source, c.target) >= 0]
    assert between
    return sum(program.avals[v].shape == (4,) for c in between for v in c.values)
