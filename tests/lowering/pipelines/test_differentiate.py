"""The two halves of a stage's derivative."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipujax import normalization_ops
from lowering.jaxprs import jaxpr, size_of
from lowering.pipelines import (
    differentiate_stage,
    has_effect_besides_collectives,
    mark_recomputation_checkpoint,
)

W = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)), jnp.float32)
B = jnp.asarray([0.3, -0.2, 0.5])
X = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3)), jnp.float32)


def floats(avals: Any) -> list[int]:
    return [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.floating)]


def halves_of(stage: Any, operands: Any, constant: Any = (0,), **more: Any) -> Any:
    """The halves of a stage with gradients of all floats, cotangents of all float results."""
    closed = jaxpr.trace_flat(lambda *flat: list(stage(*flat)), [jax.typeof(x) for x in operands])
    wanted = {"gradients": floats(closed.in_avals), "cotangents": floats(closed.out_avals)} | more
    halves = differentiate_stage(closed, constant_operands=set(constant), **wanted)
    return closed, halves, wanted


def evaluated(closed: Any, operands: Any) -> Any:
    return jax.jit(lambda *flat: jaxpr.run_equations(closed.jaxpr, closed.consts, flat))(*operands)


def check(stage: Any, *operands: Any, constant: Any = (0,), **more: Any) -> Any:
    """Both halves, one after the other, against `jax.vjp`; gives the halves."""
    closed, halves, wanted = halves_of(stage, operands, constant, **more)
    count = len(closed.out_avals)
    results = evaluated(halves.forward, operands)
    kept = [operands[i] for i in halves.kept]
    seeds = [jnp.cos(results[i] + i) for i in wanted["cotangents"]]
    gradients = evaluated(halves.backward, [*kept, *results[count:], *seeds])
    assert len(results) - count == halves.residuals

    def chosen(*values: Any) -> Any:
        given = list(operands)
        for index, value in zip(wanted["gradients"], values, strict=True):
            given[index] = value
        outputs = list(stage(*given))
        return [outputs[i] for i in wanted["cotangents"]]

    _, pullback = jax.vjp(chosen, *(operands[i] for i in wanted["gradients"]))
    wanted_results = jax.jit(lambda *flat: list(stage(*flat)))(*operands)
    for mine, theirs in zip(results, wanted_results, strict=False):
        if not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(gradients, pullback(seeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    return halves


def names(closed: Any) -> list[str]:
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


# --- golden texts ---------------------------------------------------------------------------------


def text(halves: Any) -> str:
    return f"kept {halves.kept}\n" + "\n".join(
        f"{name}: {' '.join(map(str, closed.in_avals))} -> {' '.join(map(str, closed.out_avals))}\n"
        f"  {' '.join(names(closed))}"
        for name, closed in (("forward", halves.forward), ("backward", halves.backward))
    )


def test_a_dense_layer(golden):
    golden(text(check(lambda w, b, x: [jax.nn.relu(x @ w + b)], W, B, X, constant=(0, 1))))


def test_layer_norm(golden):
    def stage(w, b, x):
        centred = x - x.mean(-1, keepdims=True)
        return [w[0] * centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) + b]

    golden(text(check(stage, W, B, X, constant=(0, 1))))


# --- one property for all kinds of stages ---------------------------------------------------------


@jax.custom_vjp
def clipped(x):
    return x * 2


clipped.defvjp(lambda x: (x * 2, x), lambda x, ct: (jnp.clip(ct * x, -0.5, 0.5),))


@jax.custom_jvp
def softened(x):
    return jnp.sin(x)


softened.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 3 * tangents[0]))


def scanned(w, x):
    def step(c, row):
        c = jnp.tanh(c @ w + row)
        return c, c

    return list(jax.lax.scan(step, jnp.ones(3), x))


def branching(w, x):
    return [jax.lax.cond(x[0, 0] > 0, lambda a: jnp.sin(a), lambda a: a @ w, x)]


def looping(w, x):
    return [jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w) + i, x)]


STAGES = {
    "custom_vjp": lambda w, x: [clipped(x @ w)],
    "custom_jvp": lambda w, x: [softened(x @ w)],
    "scan": scanned,
    "cond": branching,
    "fori_loop": looping,
    "jax.checkpoint": lambda w, x: [jax.checkpoint(lambda a: jnp.sin(jnp.sin(a @ w)))(x)],
    "jit": lambda w, x: [jax.jit(lambda a: jnp.sin(a @ w) * a)(x)],
    "closure": lambda w, x: [x @ w * np.arange(3.0, dtype=np.float32) @ np.asarray(W)],
    "two results": lambda w, x: [x @ w, jnp.sum(jnp.sin(x))],
    "a parameter as result": lambda w, x: [w * 2, x],
    "nothing depends": lambda w, x: [jnp.ones(3), x[0]],
    "of parameters": lambda w, x: [x @ (w @ w.T / jnp.linalg.norm(w))],
    "half": lambda w, x: [(x.astype(jnp.float16) @ w.astype(jnp.float16)).astype(jnp.float32)],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STAGES)
def test_the_numbers_are_those_of_vjp(name):
    check(STAGES[name], W, X)


@pytest.mark.exhaustive
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["@", "tanh", "+", "*", "sin", "relu", "norm"]), st.integers(0, 5)
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=12)
def test_random_stages(steps):
    def stage(w, x):
        values = [x]
        for kind, j in steps:
            a, b = values[-1], values[j % len(values)]
            values.append(
                {
                    "@": lambda a=a: a @ w,
                    "tanh": lambda a=a: jnp.tanh(a),
                    "+": lambda a=a, b=b: a + b,
                    "*": lambda a=a, b=b: a * b * 0.5,
                    "sin": lambda a=a: jnp.sin(a),
                    "relu": lambda a=a: jax.nn.relu(a),
                    "norm": lambda a=a: a / (1 + jnp.sum(a * a)),
                }[kind]()
            )
        return values[-2:]

    halves = check(stage, W, X)
    residuals = halves.forward.jaxpr.outvars[len(stage(W, X)) :]
    assert not set(residuals) & set(halves.forward.jaxpr.invars)  # operands are kept, not copied
    assert len(set(residuals)) == len(residuals)


def test_no_cotangents_and_no_gradients():
    check(lambda w, x: [jnp.sin(x @ w)], W, X, cotangents=[])
    check(lambda w, x: [jnp.sin(x @ w)], W, X, gradients=[])


def test_a_result_without_cotangent():
    halves = check(lambda w, x: [x @ w, jnp.tanh(x)], W, X, cotangents=[0])
    assert "tanh" in names(halves.forward)
    assert halves.residuals == 0


def test_integers_and_keys():
    def dropout(w, x, rows, key):
        mask = jax.random.bernoulli(key, 0.5, x.shape)
        return [jnp.where(mask, (x @ w)[rows], 0.0), rows + 1, jax.random.split(key)[0]]

    rows = jnp.asarray([1, 0])
    check(dropout, W, X, rows, jax.random.key(3))


def normalised(axes):
    """A normalisation of one's own, with its statistics in float32."""

    def norm(x):
        y = x.astype(jnp.float32)
        mean = y.mean(axes, keepdims=True)
        variance = jnp.square(y - mean).mean(axes, keepdims=True)
        return ((y - mean) * jax.lax.rsqrt(variance + 1e-3)).astype(x.dtype)

    return norm


OPERATIONS = {
    "group_norm": lambda x: normalization_ops.group_norm(x, groups=4),
    "layer_norm": normalised(-1),
    "batch_norm": normalised((0, 1, 2)),
    "gelu": jax.nn.gelu,
    "gelu, exact": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
    "softmax of half of it": lambda x: jax.nn.softmax(x / 2),
    "log_softmax": jax.nn.log_softmax,
    "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "group_norm and gelu": lambda x: jax.nn.gelu(normalization_ops.group_norm(x, groups=4)),
    "jitted": jax.jit(lambda x: jax.nn.silu(normalised(-1)(x))),
    "checkpointed": jax.checkpoint(lambda x: jax.nn.silu(normalised(-1)(x))),
}


# --- what is kept ---------------------------------------------------------------------------------


def residual_shapes(halves: Any, count: int = 1) -> list[str]:
    return [str(aval) for aval in halves.forward.out_avals[count:]]


@pytest.mark.exhaustive
def test_parameters_are_never_residuals():
    """Nor is what is made of them alone: it is made again."""

    def stage(w, b, x):
        whitened = w / jnp.linalg.norm(w)
        return [jnp.tanh(x @ whitened * jnp.exp(b))]

    halves = check(stage, W, B, X, constant=(0, 1))
    assert residual_shapes(halves) == ["float32[2,3]"]  # x @ whitened, which gives tanh as well
    assert set(halves.kept) == {0, 1, 2}


def test_cheap_operations_are_run_again():
    halves = check(lambda w, x: [(x @ w + 1.0) ** 2 * 3.0], W, X)
    assert residual_shapes(halves) == ["float32[2,3]"]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_waits_is_the_input_and_small_statistics(name, dtype):
    """Of norms and activations, in each precision: not what they compute in float32 on the way."""
    w, x = jnp.ones((16, 16), dtype), jnp.ones((4, 6, 6, 16), dtype)

    def stage(w, x):
        h = x @ w
        return [OPERATIONS[name](h) @ w]

    closed, halves, _ = halves_of(stage, (w, x))
    kept = halves.forward.out_avals[len(closed.out_avals) :]
    big = [aval for aval in kept if size_of(aval) == x.size]
    assert [aval.dtype for aval in big] == [dtype]
    assert sum(map(size_of, kept)) <= x.size * 5 / 4


def test_what_a_user_saves_is_what_is_kept():
    """What a `custom_vjp` computes of it in its backward function is computed there."""

    @jax.custom_vjp
    def curve(x):
        return jnp.cumsum(jnp.sin(x), -1)

    def pull(x, ct):
        return (jnp.cos(jnp.cumsum(x, -1)) * ct,)

    curve.defvjp(lambda x: (curve(x), x), pull)
    halves = check(lambda w, x: [curve(x @ w) @ w], W, X)
    assert names(halves.forward) == ["dot_general", "custom_vjp_call", "dot_general"]
    assert names(halves.backward).count("cumsum") == 1
    assert halves.residuals == 2  # x @ w, and the result for the gradient of the second product


def test_jitted_functions_are_looked_into():
    halves = check(lambda w, x: [jax.jit(lambda a: jax.nn.silu(jnp.sin(a @ w)))(x)], W, X)
    assert residual_shapes(halves) == ["float32[2,3]"]
    assert "jit" not in names(halves.forward)


def test_the_output_is_kept_once():
    halves = check(lambda w, x: [jnp.tanh(x @ w)], W, X)
    first, *others = halves.forward.jaxpr.outvars
    assert others == [first]


def test_a_long_cheap_stage():
    def stage(w, x):
        for _ in range(60):
            x = x * 1.001 + w[0]
        return [jnp.sin(x)]

    check(stage, W, X)


# --- effects --------------------------------------------------------------------------------------


def test_prints_of_the_forward_pass_are_in_the_forward_half(capfd):
    def stage(w, x):
        h = jnp.sin(x @ w)
        jax.debug.print("sum {}", h.sum() * 0 + 7)
        return [h * h]

    halves = check(stage, W, X)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("sum 7.0") >= 1
    assert sum(map(has_effect_besides_collectives, halves.forward.jaxpr.eqns)) == 1
    assert sum(map(has_effect_besides_collectives, halves.backward.jaxpr.eqns)) == 0


def test_prints_of_cotangents_are_in_the_backward_half(capfd):
    @jax.custom_vjp
    def watched(x):
        return x

    def pull(_, ct):
        jax.debug.print("cotangent {}", (ct * 0).sum() + 2)
        return (ct,)

    watched.defvjp(lambda x: (x, ()), pull)
    halves = check(lambda w, x: [watched(x @ w)], W, X)
    jax.effects_barrier()
    assert "cotangent 2.0" in capfd.readouterr().out
    assert sum(map(has_effect_besides_collectives, halves.forward.jaxpr.eqns)) == 0
    assert sum(map(has_effect_besides_collectives, halves.backward.jaxpr.eqns)) == 1


# --- the user's checkpoints -----------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [False, True])
def test_a_checkpoint_is_what_the_backward_half_reads(jitted):
    """Otherwise the value and its copy would both be kept, or recomputation would go past it."""

    def layer(w, x):
        h = mark_recomputation_checkpoint(jnp.tanh(x @ w + 1.0))
        return jnp.sin(h) @ w + h

    function = jax.jit(layer) if jitted else layer
    halves = check(lambda w, x: [function(w, x)], W, X)
    eqns = halves.forward.jaxpr.eqns
    (mark,) = (e for e in eqns if e.primitive.name == "ipu_recomputation_checkpoint")
    residuals = halves.forward.jaxpr.outvars[1:]
    assert mark.outvars[0] in residuals
    assert mark.invars[0] not in residuals
    assert not any(mark.invars[0] in e.invars for e in eqns if e is not mark)


def test_checkpoints_of_operands_and_of_checkpoints():
    check(lambda w, x: [jnp.sin(mark_recomputation_checkpoint(x) @ w)], W, X)
    check(
        lambda w, x: [jnp.sin(mark_recomputation_checkpoint(mark_recomputation_checkpoint(x @ w)))],
        W,
        X,
    )
    check(
        lambda w, x: [mark_recomputation_checkpoint(x @ w), mark_recomputation_checkpoint(x @ w)],
        W,
        X,
    )
