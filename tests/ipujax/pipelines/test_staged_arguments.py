"""The arguments of functions with stages: what is split, what goes whole, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import PipelineError, PipelineTypeError, ScopeError
from ipujax.pipelining_ops import forward, value_and_grad
from ipujax.scopes import pipeline_stage
from tests.ipujax.feeding import configure
from tests.ipujax.staging import mlp_batch, mlp_loss, mlp_params, normal, relative_distance


def spy_loss(params: Any, batch: Any, *, scale: Any = 1.0, name: str = "") -> Any:
    """A loss whose aux shows what a micro-batch was given."""
    with pipeline_stage(0):
        hidden = batch["x"] @ params["w"]
    with pipeline_stage(1):
        loss = jnp.mean(hidden**2) * jnp.mean(jnp.asarray(scale))
    shown = {key: value for key, value in batch.items() if key != "key"}
    return loss, (shown, scale, name == "plain", jax.random.key_data(batch["key"]))


def spy_batch() -> Any:
    return {"x": normal(1, 4, 3), "two": jnp.float32(2), "none": None, "flag": True,
            "key": jax.random.key(3)}  # fmt: skip


def test_leaves_are_split_go_whole_or_are_folded() -> None:
    step = value_and_grad(spy_loss, has_aux=True, micro_batches=2)
    (_, aux), _ = jax.jit(lambda p, b: step(p, b, name="plain"))(
        {"w": normal(0, 3, 3)}, spy_batch()
    )
    shown, scale, is_plain, keys = aux
    np.testing.assert_array_equal(shown["x"], spy_batch()["x"].reshape(2, 2, 3))
    np.testing.assert_array_equal(shown["two"], [2, 2])
    np.testing.assert_array_equal(shown["flag"], [True, True])
    np.testing.assert_array_equal(scale, [1, 1])
    assert is_plain.all()
    folded = [jax.random.key_data(jax.random.fold_in(spy_batch()["key"], i)) for i in range(2)]
    np.testing.assert_array_equal(keys, np.stack(folded))


@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_leaf_without_rows_is_split_into_leaves_without_rows(engine: Any) -> None:
    def loss(w: Any, batch: Any) -> Any:
        with pipeline_stage(0):
            hidden = jnp.tanh(batch["x"] @ w)
        with pipeline_stage(1):
            return jnp.mean(hidden**2) + jnp.sum(batch["extra"]), batch["extra"]

    w, batch = normal(0, 3, 3), {"x": normal(1, 4, 3), "extra": jnp.zeros((0, 2))}
    step = value_and_grad(loss, has_aux=True, micro_batches=2)
    (found, extra), gradient = ipu.compile(step, engine=engine)(w, batch)
    (wanted, _), wanted_gradient = jax.value_and_grad(loss, has_aux=True)(w, batch)
    assert extra.shape == (2, 0, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert relative_distance(gradient, wanted_gradient) < 1e-6


def test_keys_of_aux_are_keys() -> None:
    def loss(w: Any, x: Any, key: Any) -> Any:
        return jnp.mean(x @ w), jax.random.split(key)[0]

    step = value_and_grad(loss, has_aux=True, micro_batches=2, stages=1)
    (_, keys), _ = jax.jit(step)(normal(0, 3, 3), normal(1, 4, 3), jax.random.key(3))
    by_hand = [jax.random.split(jax.random.fold_in(jax.random.key(3), i))[0] for i in range(2)]
    np.testing.assert_array_equal(
        jax.random.key_data(keys), [jax.random.key_data(key) for key in by_hand]
    )


def test_a_batch_that_no_argument_holds_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def loss(params: Any) -> Any:
        return mlp_loss(params, mlp_batch())

    value, _ = value_and_grad(loss, micro_batches=4)(mlp_params())
    np.testing.assert_allclose(value, mlp_loss(mlp_params(), mlp_batch()), rtol=1e-6)
    assert "no argument of `loss` is split into the 4 micro-batches" in caplog.text
    caplog.clear()
    value_and_grad(loss, micro_batches=4, batch_argnums=())(mlp_params())
    value_and_grad(loss, micro_batches=1)(mlp_params())
    assert not caplog.text


def test_keyword_arguments_are_split_if_named() -> None:
    params, scale = {"w": normal(0, 3, 3)}, jnp.arange(1.0, 5.0)
    whole = value_and_grad(spy_loss, has_aux=True, micro_batches=2)
    split = value_and_grad(spy_loss, has_aux=True, micro_batches=2, batch_argnames="scale")
    for step, shape in ((whole, (2, 4)), (split, (2, 2))):
        (_, aux), _ = jax.jit(step)(params, spy_batch(), scale=scale)
        assert aux[1].shape == shape


def test_sums_are_not_divided() -> None:
    params, batch = mlp_params(), mlp_batch()
    mean = jax.jit(value_and_grad(mlp_loss, micro_batches=4))(params, batch)
    total = jax.jit(value_and_grad(mlp_loss, micro_batches=4, reduction="sum"))(params, batch)
    assert relative_distance(total, jax.tree.map(lambda x: 4 * x, mean)) < 1e-6


def test_sixteen_bits_are_summed_in_float32() -> None:
    def loss(w: Any, x: Any) -> Any:
        with pipeline_stage(0):
            return jnp.sum(w * x).astype(jnp.float32)

    # In float16, 1 added to 2048 is lost.
    x = jnp.array([[2048.0], [1], [1], [1]], jnp.float16)
    step = value_and_grad(loss, micro_batches=4, reduction="sum")
    _, gradient = jax.jit(step)(jnp.ones((), jnp.float16), x)
    assert gradient.dtype == jnp.float16
    assert gradient == np.float16(2051)


def test_derivatives_of_a_pipeline_are_those_of_the_loop() -> None:
    params, batch = mlp_params(), mlp_batch()
    step = value_and_grad(mlp_loss, micro_batches=2)

    def norm(function: Any) -> Any:
        return jax.jit(jax.grad(lambda p: sum(jnp.sum(g**2) for g in function(p).values())))

    expected = norm(lambda p: jax.grad(mlp_loss)(p, batch))(params)
    assert relative_distance(norm(lambda p: step(p, batch)[1])(params), expected) < 2e-6


# --- forward --------------------------------------------------------------------------------------


def network(params: Any, batch: Any, scale: float = 1.0) -> Any:
    with pipeline_stage(0):
        hidden = jnp.tanh(batch["x"] @ params["w0"])
    with pipeline_stage(1):
        return {"y": hidden @ params["w1"] * scale, "sum": jnp.sum(hidden), "row": hidden[0]}


def test_forward_joins_outputs_and_stacks_scalars() -> None:
    configure(2)
    params, batch = mlp_params(), mlp_batch()
    step = forward(network, micro_batches=4)
    result = ipu.compile(lambda *args: step(*args, scale=2.0), engine="replay")(params, batch)
    expected = network(params, batch, 2.0)
    np.testing.assert_allclose(result["y"], expected["y"], rtol=1e-5, atol=1e-5)
    assert (result["sum"].shape, result["row"].shape) == ((4,), (4 * 8,))
    np.testing.assert_allclose(result["sum"].sum(), expected["sum"], rtol=1e-5)


# --- what is refused ------------------------------------------------------------------------------


def vector_loss(params: Any, batch: Any) -> Any:
    return batch["x"] @ params["w0"]


def backward_flow(params: Any, batch: Any) -> Any:
    with pipeline_stage(1):
        hidden = batch["x"] @ params["w0"]
    with pipeline_stage(0):
        return jnp.mean((hidden @ params["w1"]) ** 2)


def missing_stage(params: Any, batch: Any) -> Any:
    with pipeline_stage(0):
        hidden = batch["x"] @ params["w0"]
    with pipeline_stage(2):
        return jnp.mean((hidden @ params["w1"]) ** 2)


def marks_in_a_scan(params: Any, batch: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        with pipeline_stage(0):
            x = x @ w
        with pipeline_stage(1):
            return x @ w, None

    return jnp.mean(jax.lax.scan(body, batch["x"], params["w0"][None])[0])


REFUSED_CALLS = {
    "rows": (mlp_loss, {"micro_batches": 5}, "batch['x'] has 16 rows along axis 0"),
    "argnums": (mlp_loss, {"argnums": 2}, "names positional argument 2, and the call has 2"),
    "negative": (mlp_loss, {"argnums": -3}, "argnums names positional argument -3"),
    "twice": (mlp_loss, {"argnums": (0, -2)}, "names an argument twice"),
    "split": (mlp_loss, {"batch_argnums": (0, 1)}, "argument 0 is named by argnums and by batch"),
    "names": (mlp_loss, {"batch_argnames": "mask"}, "batch_argnames names 'mask'"),
    "vector": (vector_loss, {}, "returned float32[4, 8]"),
    "no pair": (mlp_loss, {"has_aux": True}, "returns a pair (loss, aux)"),
    "a pair": (lambda p, b: (mlp_loss(p, b), 1), {}, "returned (float32[], 1)"),
    "no marks": (lambda p, b: vector_loss(p, b).sum(), {}, "says which stage it is in"),
    "backward": (backward_flow, {}, "`matmul` is in stage 0, and needs"),
    "missing": (missing_stage, {}, "nothing that the results need is in stage 1"),
    "scan": (marks_in_a_scan, {}, "one operation (scan) of the stages 0, 1"),
    "mapping": (mlp_loss, {"device_mapping": [0]}, "device_mapping has 1 entries for 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused_calls(name: str) -> None:
    loss, options, message = REFUSED_CALLS[name]
    step = value_and_grad(loss, **{"micro_batches": 4, **options})
    with pytest.raises((PipelineError, PipelineTypeError), match=re.escape(message)) as refusal:
        step(mlp_params(), mlp_batch())
    assert "where: " in str(refusal.value)


def test_errors_name_the_loss_where_no_code_of_the_user_calls_it() -> None:
    with pytest.raises(PipelineError, match="16 rows along axis 0") as refusal:
        ipu.compile(value_and_grad(mlp_loss, micro_batches=5))(mlp_params(), mlp_batch())
    assert "staging.py" in refusal.value.where


REFUSED_ARGUMENTS = {
    "schedule": ({"schedule": "1f2b"}, "schedule is '1f2b'"),
    "a number": ({"schedule": 3}, "the name of a schedule"),
    "reduction": ({"reduction": "max"}, "reduction is 'max'"),
    "micro_batches": ({"micro_batches": 0}, "micro_batches is 0"),
    "a text": ({"micro_batches": "4"}, "must be an integer"),
    "stages": ({"stages": 0}, "stages is 0"),
    "recompute": ({"recompute": 1}, "recompute is 1"),
    "has_aux": ({"has_aux": None}, "has_aux is None"),
    "argnums": ({"argnums": "params"}, "argnums is 'params'"),
    "batch_argnames": ({"batch_argnames": [1]}, "an entry of batch_argnames is 1"),
    "unknown": ({"stage": 3}, "stage"),
}


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_refused_arguments(name: str) -> None:
    options, message = REFUSED_ARGUMENTS[name]
    with pytest.raises((PipelineError, PipelineTypeError), match=re.escape(message)):
        value_and_grad(mlp_loss, **{"micro_batches": 4, **options})


LEAVES = {"integers": jnp.arange(3), "function": jnp.tanh, "key": jax.random.key(0), "text": "w"}


@pytest.mark.parametrize("kind", LEAVES)
def test_what_cannot_be_differentiated_is_a_type_error(kind: str) -> None:
    leaf = LEAVES[kind]
    with pytest.raises(
        PipelineTypeError, match=re.escape("params['more'] is to be differentiated")
    ):
        value_and_grad(mlp_loss, micro_batches=4)({**mlp_params(), "more": leaf}, mlp_batch())


def test_a_module_of_equinox_is_split_as_the_error_says() -> None:
    module = eqx.nn.MLP(4, "scalar", 8, 1, key=jax.random.key(0))
    x = normal(1, 8, 4)

    def loss(module: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(module)(x) ** 2)

    with pytest.raises(PipelineTypeError, match=r"module\.activation is to be") as refusal:
        value_and_grad(loss, micro_batches=4, stages=2)(module, x)
    assert "eqx.partition(module, eqx.is_inexact_array)" in str(refusal.value)
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    step = value_and_grad(
        lambda arrays, x: loss(eqx.combine(arrays, rest), x), micro_batches=4, stages=2
    )
    value, grads = jax.jit(step)(arrays, x)
    expected, plain = eqx.filter_value_and_grad(loss)(module, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert relative_distance(grads, plain) < 1e-5


def test_a_module_of_nnx_is_split_as_the_error_says() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
    rngs = nnx.Rngs(0)
    module = nnx.Sequential(nnx.Linear(4, 1, rngs=rngs), nnx.Dropout(0.1, rngs=rngs))
    with pytest.raises(PipelineTypeError, match="is to be differentiated, and is") as refusal:
        value_and_grad(lambda module, x: module(x).mean(), micro_batches=4)(module, normal(1, 8, 4))
    assert "nnx.split(module, nnx.Param, ...)" in str(refusal.value)


def draw(w: Any, x: Any, key: Any) -> Any:
    return jnp.mean(x @ w) + jax.random.uniform(key)


def test_a_legacy_key_that_does_not_divide_is_refused_with_what_to_pass() -> None:
    step = value_and_grad(draw, micro_batches=4, stages=1)
    w, x, key = normal(0, 3, 2), normal(1, 8, 3), jax.random.PRNGKey(3)
    with pytest.raises(PipelineError, match="key has 2 rows along axis 0") as refusal:
        step(w, x, key)
    assert "jax.random.wrap_key_data(key)" in str(refusal.value)
    value, _ = step(w, x, jax.random.wrap_key_data(key))
    folded = [jax.random.fold_in(jax.random.wrap_key_data(key), i) for i in range(4)]
    expected = jnp.mean(x @ w) + jnp.mean(jnp.stack([jax.random.uniform(k) for k in folded]))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_one_micro_batch_gets_a_legacy_key_whole() -> None:
    w, x, key = normal(0, 3, 2), normal(1, 8, 3), jax.random.PRNGKey(3)
    value, _ = value_and_grad(draw, micro_batches=1, stages=1)(w, x, key)
    np.testing.assert_allclose(value, draw(w, x, key), rtol=1e-5)


def test_two_rows_of_unsigned_numbers_are_a_batch() -> None:
    step = value_and_grad(lambda w, ids: jnp.mean(w[ids]), micro_batches=2, stages=1)
    value, _ = step(jnp.arange(4.0), jnp.array([1, 3], jnp.uint32))
    assert value == 2


@pytest.mark.parametrize("index", [-1, 1.5, "one", None])
def test_stages_have_numbers(index: Any) -> None:
    with pytest.raises(ScopeError, match="pipeline_stage"), pipeline_stage(index):
        pass
