"""The `sharding` helpers, on jaxprs and their equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.scopes import ipu_shard
from ipujax.sharding import (
    dependencies,
    get_shard_from_colocation,
    has_attr,
    propagate_sharding,
)


def network(w: Any, x: Any) -> Any:
    above = x * 2
    with ipu_shard(1):
        h = jnp.tanh(above @ w)
    between = h * 3
    with ipu_shard(0):
        return jnp.sum(jnp.sin(between))


ARGS = (jnp.full((2, 2), 0.5), jnp.ones((2, 2)))


def shards(closed: Any) -> dict[str, list[int | None]]:
    """The shards that the equations' own marks name, by primitive, in order."""
    found: dict[str, list[int | None]] = {}
    for eqn in closed.eqns:
        found.setdefault(eqn.primitive.name, []).append(get_shard_from_colocation(eqn))
    return found


def names(eqns: Any) -> list[str]:
    return [eqn.primitive.name for eqn in eqns]


def test_dependencies_of_a_jaxpr_leave_out_what_is_dead() -> None:
    def model(x: Any) -> Any:
        jnp.exp(x)
        return jnp.sin(x) + jnp.cos(x)

    closed = jax.make_jaxpr(model)(1.0)
    assert "exp" in names(closed.eqns)
    assert names(dependencies(closed)) == ["sin", "cos", "add"]
    assert names(dependencies(closed.jaxpr)) == ["sin", "cos", "add"]


def test_dependencies_of_equations_and_variables() -> None:
    closed = jax.make_jaxpr(lambda x: (jnp.sin(jnp.exp(x)), jnp.cos(x)))(1.0)
    exp, sin, cos = closed.eqns
    assert dependencies(sin, jaxpr=closed) == [exp, sin]
    assert dependencies([sin, cos], jaxpr=closed) == [exp, sin, cos]
    assert dependencies(exp.outvars[0], jaxpr=closed) == [exp]
    assert dependencies([closed.jaxpr.invars[0]], jaxpr=closed) == []


def test_dependencies_refuse_what_is_not_there() -> None:
    closed, other = jax.make_jaxpr(jnp.sin)(1.0), jax.make_jaxpr(jnp.cos)(1.0)
    with pytest.raises(TypeError, match="needs the jaxpr"):
        dependencies(closed.eqns)
    with pytest.raises(TypeError, match="roots is 3"):
        dependencies(3, jaxpr=closed)
    with pytest.raises(TypeError, match="must be an equation"):
        dependencies(["sin"], jaxpr=closed)
    with pytest.raises(TypeError, match="must be a jaxpr"):
        dependencies(closed.eqns, jaxpr=jnp.sin)
    with pytest.raises(ValueError, match="is not of the jaxpr"):
        dependencies(other.eqns, jaxpr=closed)
    with pytest.raises(ValueError, match="is not of the jaxpr"):
        dependencies(other.jaxpr.invars, jaxpr=closed)


def test_colocation_of_backward_equations() -> None:
    closed = jax.make_jaxpr(jax.grad(network))(*ARGS)
    for eqn in closed.eqns:
        if "transpose(jvp(ipu_shard[1]))" in str(eqn.source_info.name_stack):
            assert get_shard_from_colocation(eqn) == 1
    (unmarked,) = (e for e in closed.eqns if str(e.source_info.name_stack) == "transpose(jvp())")
    assert get_shard_from_colocation(unmarked) is None
    assert get_shard_from_colocation(unmarked, jaxpr=closed) == 0  # what makes its operand


def test_colocation_of_forward_equations() -> None:
    closed = jax.make_jaxpr(network)(*ARGS)
    above, between = (eqn for eqn in closed.eqns if eqn.primitive.name == "mul")
    assert get_shard_from_colocation(above, jaxpr=closed) is None
    assert get_shard_from_colocation(between, jaxpr=closed) == 1
    with pytest.raises(TypeError, match="must be an equation"):
        get_shard_from_colocation(closed)


def test_attributes_are_parameters_and_marks() -> None:
    def model(x: Any) -> Any:
        with ipu_shard(1), ipu.scopes.frontend_attribute("mine", "1"):
            return x @ x

    (eqn,) = jax.make_jaxpr(model)(jnp.ones((2, 2))).eqns
    for name in ("dimension_numbers", "ipu_shard", "_XlaSharding", "mine"):
        assert has_attr(eqn, name)
    for name in ("outlined", "outside_compilation", "ipu_jit_scope", "yours", "1"):
        assert not has_attr(eqn, name)


def test_shards_are_propagated_downwards() -> None:
    closed = jax.make_jaxpr(network)(*ARGS)
    assert shards(closed)["mul"] == [None, None]
    written = propagate_sharding(closed)
    assert shards(written) == {
        "mul": [None, 1],
        "dot_general": [1],
        "tanh": [1],
        "sin": [0],
        "reduce_sum": [0],
    }
    assert shards(closed)["mul"] == [None, None]
    assert shards(propagate_sharding(written)) == shards(written)


def test_shards_are_propagated_to_the_backward_pass() -> None:
    def model(w: Any, x: Any) -> Any:
        return jax.value_and_grad(network)(w, x)

    closed = jax.make_jaxpr(model)(*ARGS)
    written = propagate_sharding(closed)
    backward = [e for e in written.eqns if "transpose" in str(e.source_info.name_stack)]
    assert all(get_shard_from_colocation(eqn) is not None for eqn in backward)
    (twin,) = (
        new
        for old, new in zip(closed.eqns, written.eqns, strict=True)
        if str(old.source_info.name_stack) == "transpose(jvp())"
    )
    assert get_shard_from_colocation(twin) == 1  # not 0, where its operand comes from
    got = jax.core.eval_jaxpr(written.jaxpr, written.consts, *ARGS)
    for left, right in zip(got, jax.tree.leaves(model(*ARGS)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_propagation_enters_loops_and_calls() -> None:
    def model(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            with ipu_shard(1):
                carry = jnp.sin(carry)
            carry = carry + 1
            with ipu_shard(0):
                return jnp.cos(carry) * 2, None

        x = jax.lax.scan(step, x, length=3)[0]
        return jax.jit(network)(x, x) - 1

    closed = jax.make_jaxpr(model)(ARGS[0])
    written = propagate_sharding(closed)
    assert names(written.eqns)[0] == "scan"
    assert shards(written)["mul"] == [0, 1]
    assert shards(written)["sub"] == [0]
    assert shards(written.eqns[0].params["jaxpr"]) == {
        "sin": [1],
        "add": [1],
        "cos": [0],
        "mul": [0],
    }
    (got,) = jax.core.eval_jaxpr(written.jaxpr, written.consts, ARGS[0])
    np.testing.assert_allclose(got, model(ARGS[0]), rtol=1e-6)


def test_propagation_keeps_the_program() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    model = jax.value_and_grad(network)
    written = propagate_sharding(jax.make_jaxpr(model)(*ARGS))

    def again(*args: Any) -> Any:
        return jax.core.eval_jaxpr(written.jaxpr, written.consts, *args)

    texts = [ipu.compile(f, name="m").lower(*ARGS).as_text() for f in (model, again)]
    assert texts[0] == texts[1]


def test_open_jaxprs_stay_open() -> None:
    table = np.arange(4.0, dtype=np.float32)
    closed = jax.make_jaxpr(lambda x: network(x, x) + jnp.asarray(table))(ARGS[0])
    written = propagate_sharding(closed.jaxpr)
    assert type(written) is type(closed.jaxpr)
    assert len(written.constvars) == len(closed.consts)
    (got,) = jax.core.eval_jaxpr(written, closed.consts, ARGS[0])
    np.testing.assert_allclose(got, network(ARGS[0], ARGS[0]) + table, rtol=1e-6)


def test_nothing_to_propagate() -> None:
    closed = jax.make_jaxpr(jnp.sin)(1.0)
    assert propagate_sharding(closed) is closed
    with pytest.raises(TypeError, match="must be a jaxpr"):
        propagate_sharding(jnp.sin)
