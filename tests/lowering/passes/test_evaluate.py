"""What passes trace in the place of an equation is configured as the equation is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from lowering import Options
from lowering.jaxprs import EquationFinder, evaluate_equations_with, jaxpr, rewrite_equations
from lowering.passes import number_formats
from tests.lowering.samples import V, trace


def described(x):
    with set_xla_metadata(a=1):
        y = jnp.sin(x)
    return y + x


def contexts(closed):
    return {eqn.primitive.name: eqn.ctx.xla_metadata for eqn in closed.jaxpr.eqns}


def test_evaluated():
    closed = trace(described, V)

    def run(eqn, operands):
        return [jnp.cos(x) for x in operands[:1]]

    def whole(x):
        return evaluate_equations_with(closed, [x], run)

    got = [eqn.ctx.xla_metadata for eqn in jaxpr.trace_flat(whole, closed.in_avals).jaxpr.eqns]
    assert got == [{"a": 1}, None]


def test_rewritten():
    closed = rewrite_equations(
        trace(described, V),
        EquationFinder(lambda eqn: eqn.primitive.name in ("sin", "add")),
        lambda rewriter, eqn: rewriter.replace_by_jaxpr(
            eqn, trace(jnp.cos if len(eqn.invars) == 1 else jnp.subtract, *_avals(eqn))
        ),
    )
    assert contexts(closed) == {"cos": {"a": 1}, "sub": None}


def test_formatted():
    half = jax.ShapeDtypeStruct((3,), jnp.float16)
    options = Options(num_ipus=1, float16_limits=True)
    got = contexts(number_formats(trace(described, half), options, 1))
    assert got["sin"] == {"a": 1}
    assert got["add"] is None


def _avals(eqn):
    return [atom.aval for atom in eqn.invars]
