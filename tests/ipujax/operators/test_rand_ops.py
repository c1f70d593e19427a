"""Dropout against the facts, and where its random numbers come from."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import ConfigTypeError, LoweringError, OperatorError
from ipujax.functional_ops import outlined_function
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    RecomputationMode,
    check_pipeline,
    pipeline,
)
from ipujax.rand_ops import dropout
from ipujax.utils import reset_ipu_seed
from lowering.ops import all_gather

X = jnp.ones((64, 64, 4))
ROW = jnp.ones(256)


def use(ipus: int, **options: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in options.items():
        setattr(config, name, value)
    config.configure_ipu_system()


def all_differ(masks: Any) -> bool:
    rows = np.asarray(masks)
    return len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows)


# --- values -----------------------------------------------------------------------------------


@pytest.mark.fact("dropout_rng.kept_scaled")
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_kept_is_scaled(dtype: Any) -> None:
    out = dropout(X.astype(dtype), 0.5, seed=1)
    assert out.dtype == dtype
    np.testing.assert_array_equal(np.unique(out), [0, 2])


@pytest.mark.fact("dropout_rng.fraction")
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9, 0.998])
def test_the_share_that_is_dropped(rate: float) -> None:
    out = np.asarray(dropout(jnp.ones(1 << 18), rate, seed=(3, 4)))
    deviation = np.sqrt(rate * (1 - rate) / out.size)
    assert abs((out == 0).mean() - rate) < 5 * deviation
    np.testing.assert_allclose(np.unique(out)[1], 1 / (1 - rate), rtol=1e-6)


@pytest.mark.fact("dropout_rng.noise_shape")
@pytest.mark.parametrize("noise", [[64, 64, 1], [None, None, 1], np.array([64, 64, 1])])
def test_a_mask_is_shared_along_axes_of_extent_1(noise: Any) -> None:
    out = np.asarray(dropout(X, noise_shape=noise, seed=1))
    np.testing.assert_array_equal(out, np.broadcast_to(out[..., :1], out.shape))
    assert 0.3 < (out[..., 0] == 0).mean() < 0.7


def test_an_empty_noise_shape_is_none() -> None:
    np.testing.assert_array_equal(dropout(X, noise_shape=[], seed=1), dropout(X, seed=1))


def test_rates_next_to_1() -> None:
    assert np.mean(np.asarray(dropout(X, 1 - 1e-12, seed=1)) == 0) > 0.999
    out = dropout(jnp.ones(1 << 20, jnp.float16), 0.99999, seed=1)
    np.testing.assert_array_equal(np.unique(out), np.array([0, 65504], np.float16))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_odd_sizes(size: int) -> None:
    assert dropout(jnp.ones(size), seed=1).shape == (size,)


def test_seeds_and_keys_repeat_themselves() -> None:
    starts: list[dict[str, Any]] = [
        {"seed": 1},
        {"seed": 1 + (1 << 32)},
        {"seed": [1, 2]},
        {"seed": (1, -2)},
        {"key": jax.random.key(5)},
    ]
    masks = [np.asarray(dropout(X, **start)) for start in starts]
    assert all_differ(masks)
    compiled = ipu.compile(lambda x: [dropout(x, **start) for start in starts])
    for mine, theirs in zip(compiled(X), masks, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(dropout(X, key=jax.random.PRNGKey(5)), masks[-1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "alike",
    [
        [3, np.int8(3), np.uint32(3), np.int64(3), jnp.int32(3), np.array(3), (0, 3)],
        [-3, np.int8(-3), np.int64(-3), jnp.int32(-3), (-1, -3)],
        [5 << 32, np.int64(5 << 32), np.uint64(5 << 32), (5, 0)],
        [(7, -2), [np.int32(7), np.uint32(0xFFFFFFFE)], (jnp.int32(7), -2)],
        [(7, -2), np.array([7, -2]), jnp.array([7, -2]), np.array([7, -2], np.int8)],
    ],
)
def test_equal_seeds_give_equal_masks_however_they_are_given(alike: list[Any]) -> None:
    masks = [np.asarray(dropout(ROW, seed=seed)) for seed in alike]
    traced = jax.jit(lambda seed: dropout(ROW, seed=seed))
    small = [s for s in alike if all(np.abs(np.int64(word)) < 2**31 for word in np.ravel(s))]
    masks += [np.asarray(traced(seed)) for seed in small]
    with jax.default_prng_impl("rbg"):
        masks.append(np.asarray(dropout(ROW, seed=alike[0])))
    np.testing.assert_array_equal(masks, [masks[0]] * len(masks))


def test_seeds_of_small_integers_are_those_of_keys() -> None:
    np.testing.assert_array_equal(dropout(X, seed=5), dropout(X, key=jax.random.key(5)))


def test_raw_keys_are_of_the_algorithm_that_is_set() -> None:
    with jax.default_prng_impl("rbg"):
        raw, typed = jax.random.PRNGKey(5), jax.random.key(5)
        np.testing.assert_array_equal(dropout(X, key=raw), dropout(X, key=typed))
        with pytest.raises(ConfigTypeError, match="the key of dropout"):
            dropout(X, key=np.zeros(2, np.uint32))


# --- derivatives ------------------------------------------------------------------------------


def test_derivatives_have_the_mask() -> None:
    def fn(x: Any) -> Any:
        return dropout(x, 0.25, key=jax.random.key(2))

    x = jnp.linspace(-1, 1, 256)
    mask = fn(jnp.ones_like(x))
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(fn(x) * x))(x), 2 * mask * x, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(fn, [x], [x])[1], mask * x, rtol=1e-6)
    keys = jax.random.split(jax.random.key(0), 3)
    each = jax.vmap(lambda k: dropout(ROW, key=k))(keys)
    assert all_differ(each)


def test_no_mask_is_kept() -> None:
    _, pullback = jax.vjp(lambda x: dropout(x, seed=1), X)
    assert sum(leaf.size for leaf in jax.tree.leaves(pullback)) < 100


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.fact("dropout_rng.rate_range")
def test_rates() -> None:
    for rate in (1, -0.1, 2):
        with pytest.raises(ValueError, match=r"at least 0 and less than 1\n.*test_rand_ops"):
            dropout(X, rate)
    np.testing.assert_array_equal(dropout(X, 0), X)
    for wrong in ("much", None, True, float("nan")):
        with pytest.raises(ConfigTypeError, match="the rate of dropout is"):
            dropout(X, wrong, seed=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigTypeError, match="known while tracing"):
        jax.jit(lambda rate: dropout(X, rate, seed=1))(0.5)


@pytest.mark.fact("dropout_rng.noise_rank")
def test_noise_shapes() -> None:
    with pytest.raises(ValueError, match="its length must equal the rank of x, which is 3"):
        dropout(X, noise_shape=[1], seed=1)
    with pytest.raises(OperatorError, match=r"\[64, 2, 4\], and x has shape \[64, 64, 4\]"):
        dropout(X, noise_shape=[64, 2, 4], seed=1)
    with pytest.raises(ConfigTypeError, match="noise_shape"):
        dropout(X, noise_shape=2.0, seed=1)  # pyright: ignore[reportArgumentType]


def test_other_bad_input() -> None:
    with pytest.raises(OperatorError, match="both a seed and a key"):
        dropout(X, seed=1, key=jax.random.key(1))
    with pytest.raises(OperatorError, match="must be floats"):
        dropout(jnp.arange(3), seed=1)
    for seed in (1.5, [1.0, 2.0], "a", True, [[1], [1, 2]], jax.random.key(1)):
        with pytest.raises(ConfigTypeError, match="the seed of dropout"):
            dropout(X, seed=seed)
    for seed in ([1, 2, 3], np.array([1]), np.ones((2, 2), int)):
        with pytest.raises(OperatorError, match=r"the seed of dropout has shape(.|\n)*a pair"):
            dropout(X, seed=seed)
    with pytest.raises(OperatorError, match="32 bits"):
        dropout(X, seed=[1, 1 << 40])
    with pytest.raises(OperatorError, match="64 bits"):
        dropout(X, seed=1 << 64)
    with pytest.raises(ConfigTypeError, match="the key of dropout"):
        dropout(X, key=3)


def test_outside_compiled_code_a_seed_is_asked_for() -> None:
    with pytest.raises(OperatorError, match=r"neither a seed nor a key(.|\n)*seed=42") as error:
        jax.jit(lambda x: dropout(x))(X)
    assert __file__ in str(error.value)
    shared = jax.jit(lambda x: dropout(x))
    ipu.compile(lambda x: shared(x))(ROW)
    with pytest.raises(LoweringError, match="outside compiled code"):  # JAX kept the trace
        jax.jit(lambda x: shared(x))(ROW)


# --- the device's seed ------------------------------------------------------------------------


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (c, dropout(x)), None, None, length=4)[1]


def repeated(x: Any) -> Any:
    def body(step: Any, rows: Any) -> Any:
        return step + 1, rows.at[step].set(dropout(x))

    return ipu.loops.repeat(4, body, [0, jnp.zeros((4, *x.shape))])[1]


def looped(x: Any) -> Any:
    def body(carried: Any) -> Any:
        step, rows = carried
        return step + 1, rows.at[step].set(dropout(x))

    return jax.lax.while_loop(lambda c: c[0] < 4, body, (0, jnp.zeros((4, *x.shape))))[1]


def called(x: Any) -> Any:
    outlined = outlined_function(lambda x: dropout(x))
    jitted = jax.jit(lambda x: dropout(x))
    return jnp.stack([outlined(x), outlined(x), jitted(x), jitted(x), dropout(x), dropout(x)])


def branched(x: Any) -> Any:
    taken = jax.lax.cond(x[0] > 0, dropout, lambda x: x, x)
    return jnp.stack([taken, dropout(x)])


def nested(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (c, scanned(x)), None, None, length=3)[1].reshape(12, -1)


def vmapped(x: Any) -> Any:
    return jax.vmap(lambda row: jax.vmap(dropout)(row))(
        jnp.stack([x] * 6).reshape(2, 3, -1)
    ).reshape(6, -1)


@pytest.mark.exhaustive
@pytest.mark.fact("dropout_rng.no_seed_varies")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_every_draw_differs(engine: str) -> None:
    parts = [scanned, repeated, looped, called, branched, nested, vmapped]

    def fn(x: Any) -> Any:
        return jnp.concatenate([part(x) for part in parts])

    run = ipu.compile(fn, engine=engine)
    reset_ipu_seed(3)
    first, second = run(ROW), run(ROW)
    assert all_differ(jnp.concatenate([first, second]))
    np.testing.assert_allclose(np.mean(first == 0), 0.5, atol=0.05)
    reset_ipu_seed(3)
    np.testing.assert_array_equal(run(ROW), first)
    reset_ipu_seed(4)
    assert all_differ(jnp.concatenate([first, run(ROW)]))


@pytest.mark.fact("dropout_rng.no_seed_varies")
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_replicas_differ_unless_they_are_seeded_alike(engine: str) -> None:
    use(4)
    run = ipu.compile(lambda x: all_gather(dropout(x), 4), engine=engine)
    reset_ipu_seed(1)
    assert all_differ(run(ROW))
    reset_ipu_seed(1, experimental_identical_replicas=True)
    rows = np.asarray(run(ROW))
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))


@pytest.mark.exhaustive
@pytest.mark.fact("dropout_rng.no_seed_varies")
def test_a_replicated_loop_over_an_infeed() -> None:
    use(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.repeat((np.asarray(ROW),) * 2))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(one: Any, other: Any) -> None:
        outfeed.enqueue({"one": dropout(one), "other": dropout(other)})

    run = ipu.compile(lambda: ipu.loops.repeat(10, body, [], infeed))
    masks: list[Any] = []
    for _ in range(2):
        run()
        masks += [np.reshape(rows, (20, -1)) for rows in outfeed.dequeue().values()]
    assert all_differ(np.concatenate(masks))


@pytest.mark.exhaustive
@pytest.mark.fact("dropout_rng.no_seed_varies")
def test_replicated_pipelines_that_are_repeated() -> None:
    use(4)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.repeat(np.asarray(ROW)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    stages = [lambda x: (x, dropout(x)), lambda x, one: (one, dropout(x))]
    ipu.compile(
        lambda: pipeline(stages, 4, repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed)
    )()
    masks = [np.reshape(rows, (16, -1)) for rows in outfeed.dequeue()]
    assert all_differ(np.concatenate(masks))


@pytest.mark.exhaustive
def test_checking_a_pipeline_needs_seeds() -> None:
    use(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(itertools.repeat(np.asarray(ROW)))
    for seed in (None, 1):
        arguments: dict[str, Any] = {
            "computational_stages": [lambda x, seed=seed: dropout(x, seed=seed), jnp.sum],
            "gradient_accumulation_count": 2,
            "infeed_queue": infeed,
        }
        if seed is None:
            with pytest.raises(OperatorError, match=r"seed=42(.|\n)*check_pipeline met this"):
                check_pipeline(**arguments)
        else:
            check_pipeline(**arguments).raise_if_different()


def test_whether_replicas_are_alike_is_a_bool() -> None:
    with pytest.raises(ConfigTypeError, match="experimental_identical_replicas is 'yes'"):
        reset_ipu_seed(1, experimental_identical_replicas="yes")  # pyright: ignore[reportArgumentType]


def test_devices_differ_until_they_are_seeded_alike() -> None:
    use([1, 1])  # pyright: ignore[reportArgumentType]
    names = ("/device:IPU:0", "/device:IPU:1")
    runs = [ipu.compile(lambda x: dropout(x), device=name) for name in names]
    assert all_differ([run(ROW) for run in runs])
    for name in names:
        reset_ipu_seed(1, name)
    np.testing.assert_array_equal(runs[0](ROW), runs[1](ROW))


def stacked(x: Any, wrap: Callable[[Any], Any]) -> Any:
    layer = wrap(lambda x: dropout(x, 0.25))
    x = jax.lax.scan(lambda c, _: (layer(c), None), x, None, length=2)[0]
    return layer(layer(x))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "wrap",
    [lambda f: f, jax.jit, jax.checkpoint, lambda f: jax.checkpoint(jax.jit(f))],
    ids=["plain", "jit", "remat", "remat of jit"],
)
def test_backward_passes_have_the_masks_of_forward_ones(wrap: Any) -> None:
    def loss(x: Any) -> Any:
        out = stacked(x, wrap)
        return jnp.sum(out), out

    gradient, out = ipu.compile(jax.grad(loss, has_aux=True))(ROW)
    np.testing.assert_allclose(gradient, out, rtol=1e-6)
    assert 0.15 < np.mean(np.asarray(out) > 0) < 0.5  # 0.75 ** 4 = 0.32


INTERLEAVED = RecomputationMode.RecomputeAndBackpropagateInterleaved


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("schedule", "engine", "mode"),
    [
        (schedules.grouped, "fused", None),
        (schedules.grouped, "replay", RecomputationMode.RecomputeThenBackpropagate),
        (schedules.interleaved, "replay", INTERLEAVED),
        (schedules.zero_bubble, "replay", None),
    ],
)
def test_pipelines(schedule: Any, engine: str, mode: Any) -> None:
    """The loss is linear in the weights, so its gradient tells whether the masks are the same."""
    use(2, allow_recompute=mode is not None)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(
        [np.full((4, 8), i + 1.0, np.float32) for i in range(8)]
    )
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    weights = {"w": jnp.eye(8)}

    def first(v: Any, x: Any) -> Any:
        return dropout(x @ v["w"])

    def last(v: Any, x: Any) -> Any:
        return jnp.sum(dropout(x)), x

    def fn(variables: Any) -> Any:
        return pipeline(
            [first, last],
            8,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss, _: OptimizerFunctionOutput(optax.sgd(1.0), loss),
            pipeline_schedule=schedule,
            recomputation_mode=mode,
            variables=variables,
        )

    reset_ipu_seed(3)
    new = ipu.compile(fn, engine=engine)(weights)[0]["w"]
    losses, outs = outfeed.dequeue()
    assert all_differ(np.asarray(outs) > 0)
    gradient = np.eye(8) - np.asarray(new)
    np.testing.assert_allclose(np.trace(gradient), np.sum(np.asarray(losses)), rtol=1e-5)


def test_reports() -> None:
    def fn(x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(jnp.sin(dropout(x))))(x)

    report = ipu.compile(fn).lower(X).report()
    assert report.default_share < 0.05
