"""Conformance facts about optimizers and gradient accumulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.errors import OptimizerError
from ipujax.loops import repeat
from ipujax.optimizers import (
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    IpuOptimizer,
    MapGradientOptimizer,
    compute_gradients,
)
from ipujax.replication_ops import replication_index
from tests.ipujax.feeding import configure, infeed, outfeed

ADD = optax.identity()  # updates are the gradients: `apply_updates` adds them


def train(opt: Any, count: int, gradients: Callable[[Any], Any], params: Any) -> Any:
    """The parameters and the state after `count` compiled steps."""

    def body(params: Any, state: Any) -> Any:
        updates, state = opt.update(gradients(params), state, params)
        return optax.apply_updates(params, updates), state

    run = ipu.compile(lambda params, state: repeat(count, body, [params, state]))
    return run(params, opt.init(params))


# --- MapGradientOptimizer -------------------------------------------------------------------------


def mapped(function: Any, loss: Any, *values: float) -> list[list[float]]:
    variables = [jnp.array([float(value)]) for value in values]
    opt = MapGradientOptimizer(optax.sgd(1e-6), function)
    gradients = jax.grad(lambda v: loss(*v)[0])(variables)
    return [x.tolist() for x in compute_gradients(opt, gradients, variables)]


@pytest.mark.fact("optimizers.map_square2")
def test_squares_of_gradients() -> None:
    grads = mapped(lambda g, v: g**2, lambda x, y, z: x * x + y + z, 1, 1, 1)
    assert grads == [[4], [1], [1]]


@pytest.mark.fact("optimizers.map_clip")
def test_clipped_gradients() -> None:
    grads = mapped(lambda g, v: jnp.clip(g, 7, 14), lambda x, y, z: x * y + x * z + y * z, 1, 5, 10)
    assert grads == [[14], [11], [7]]


def test_decay_of_the_reference() -> None:
    grads = mapped(lambda g, v: g + 0.01 * v, lambda x, y, z: x * y + x * z + y * z, 1, 2, 3)
    np.testing.assert_allclose(grads, [[5.01], [4.02], [3.03]], rtol=1e-6)


@pytest.mark.fact("optimizers.map_minimize")
def test_a_step_with_squared_gradients() -> None:
    opt = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: g**2)

    def step(params: Any) -> Any:
        gradients = jax.grad(lambda v: v[0] * v[1] * v[2])(params)
        updates, _ = opt.update(gradients, opt.init(params), params)
        return optax.apply_updates(params, updates)

    assert ipu.compile(step)([1.0, 2.0, 3.0]) == [-35, -7, -1]


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.fact("optimizers.cross_replica_mean")
def test_gradients_are_averaged_over_replicas_and_none_passes() -> None:
    configure(4)
    opt = CrossReplicaOptimizer(ADD)

    def step(x: Any) -> Any:
        gradients = {"w": x * (1 + replication_index()), "unused": None}
        return opt.update(gradients, opt.init(gradients))[0]

    updates = ipu.compile(step)(np.ones(3, np.float32))
    np.testing.assert_array_equal(updates["w"], [2.5] * 3)
    assert updates["unused"] is None


@pytest.mark.fact("grad_accum.cross_replica_v2")
def test_sum_over_mini_batches_then_mean_over_replicas_once() -> None:
    configure(2)
    opt = CrossReplicaGradientAccumulationOptimizerV2(ADD, 3)

    def step(params: Any) -> Any:
        return jnp.ones(2) * (1 + replication_index())

    params, _ = train(opt, 6, step, np.zeros(2, np.float32))
    np.testing.assert_array_equal(params, [9, 9])  # (3 * 1 + 3 * 2) / 2, twice

    state = opt.init(jnp.zeros(2))
    jaxpr = jax.make_jaxpr(lambda g, s: opt.update(g, s))(jnp.ones(2), state)
    assert "cross_replica_sum" not in {eqn.primitive.name for eqn in jaxpr.eqns}
    (branches,) = [e.params["branches"] for e in jaxpr.eqns if e.primitive.name == "cond"]
    assert ["cross_replica_sum" in str(branch) for branch in branches] == [False, True]


# --- the first version, as its operations were tested ---------------------------------------------


@pytest.mark.fact("grad_accum.v1_crs_then")
def test_sum_over_replicas_then_accumulate() -> None:
    configure(2)
    opt = GradientAccumulationOptimizer(ADD, 5)
    y, _ = train(opt, 10, lambda _: cross_replica_sum(jnp.float32(1)), np.float32(10))
    assert y == 30


@pytest.mark.fact("grad_accum.v1_normalised")
def test_mean_over_replicas_then_accumulate() -> None:
    configure(2)
    opt = CrossReplicaOptimizer(GradientAccumulationOptimizer(ADD, 5))
    y, _ = train(opt, 10, lambda _: jnp.float32(1), np.float32(10))
    assert y == 20


@pytest.mark.fact("grad_accum.v1_momentum_multi")
@pytest.mark.parametrize(
    ("gradient", "momentum", "y", "acc"),
    [(2.5, 0.8, 45, 22.5), (7, 0.6, 101, 56), (8, 0.8, 122, 72)],
)
def test_momentum_is_folded_in_once_per_update(
    gradient: float, momentum: float, y: float, acc: float
) -> None:
    configure(2)
    opt = CrossReplicaOptimizer(GradientAccumulationOptimizer(optax.trace(momentum), 5))
    end, state = train(opt, 10, lambda _: jnp.float32(gradient), np.float32(10))
    np.testing.assert_allclose([end, opt.get_slot(state, "trace")], [y, acc], rtol=1e-6)


# --- accumulation ---------------------------------------------------------------------------------


@pytest.mark.fact("grad_accum.not_multiple")
def test_mini_batches_must_divide_the_iterations() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1), 32)
    with pytest.raises(OptimizerError, match="must evenly divide loop iterations") as caught:
        train(opt, 10, lambda params: params, np.ones(2, np.float32))
    assert isinstance(caught.value, ValueError)
    assert "test_facts_optimizers.py" in str(caught.value)


@pytest.mark.fact("grad_accum.outside_loop")
def test_accumulation_needs_a_loop() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1), 2)
    run = ipu.compile(lambda params: opt.update(params, opt.init(params))[0])
    with pytest.raises(OptimizerError, match="outside of a loop"):
        run(np.ones(2, np.float32))


@pytest.mark.fact("grad_accum.v2_update_timing")
def test_the_sum_is_applied_every_nth_iteration() -> None:
    opt, sink = GradientAccumulationOptimizerV2(optax.sgd(1.0), 3), outfeed()

    def body(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = opt.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        sink.enqueue(params)
        return params, state

    source = infeed(np.arange(1, 7, dtype=np.float32))
    run = ipu.compile(lambda p, s: repeat(6, body, [p, s], source))
    run(np.float32(0), opt.init(jnp.float32(0)))
    assert sink.dequeue().tolist() == [0, 0, -6, -6, -6, -21]


@pytest.mark.fact("grad_accum.dtype")
@pytest.mark.parametrize(("method", "expected"), [("SUM", 524032), ("MEAN", 65504)])
def test_accumulators_of_another_dtype(method: str, expected: float) -> None:
    seen: list[Any] = []

    class Seeing(IpuOptimizer):
        def apply_gradients(self, gradients: Any, *args: Any, **extra: Any) -> Any:
            seen.append(gradients.dtype)
            return super().apply_gradients(gradients, *args, **extra)

    opt = GradientAccumulationOptimizerV2(
        Seeing(ADD), 8, dtype=lambda variable: jnp.float32, reduction_method=method
    )
    weights = jnp.ones(4, jnp.float16)
    features = jnp.array([0, 0, 65504, 0], jnp.float16)

    def body(state: Any, last: Any) -> Any:
        updates, state = opt.update(jax.grad(lambda w: (w * features).sum())(weights), state)
        return state, updates

    run = ipu.compile(lambda state: repeat(8, body, [state, np.zeros(4, np.float32)]))
    _, gradients = run(opt.init(weights))
    assert set(seen) == {jnp.dtype(jnp.float32)}
    assert gradients.dtype == np.float32
    assert gradients.tolist() == [0, 0, expected, 0]


def images_and_labels() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of two of the endless 0, 1, ..., 6, 0, ... as [4, 4] images, and labels of four."""
    for first in itertools.count(0, 2):
        values = np.array([first % 7, (first + 1) % 7])
        images = np.broadcast_to(values[:, None, None], (2, 4, 4)).astype(np.float32)
        yield images, (values % 4).astype(np.int32)


def losses(model: Any, weights: int) -> np.ndarray:
    opt = GradientAccumulationOptimizerV2(optax.adam(1e-3), 20, reduction_method="MEAN")
    sink = outfeed()

    def loss(params: Any, images: Any, labels: Any) -> Any:
        logits = model(images, params).mean(1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def body(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        sink.enqueue(value)
        updates, state = opt.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    source = infeed(images_and_labels)
    params = [jnp.ones((4, 4)) for _ in range(weights)]
    ipu.compile(lambda p, s: repeat(40, body, [p, s], source))(params, opt.init(params))
    return sink.dequeue()


@pytest.mark.fact("grad_accum.shared_adam")
def test_adam_with_a_weight_used_twice() -> None:
    found = losses(lambda x, w: x @ w[0] @ w[1] @ w[2] @ w[3] @ w[0], 4)
    expected = [1.3862944, 1.3862944, 0.69316734, 1.1003837, 3.7744703]
    np.testing.assert_allclose(found[[0, 1, 20, 21, 22]], expected, rtol=5e-4)


@pytest.mark.fact("grad_accum.relu_adam")
def test_adam_with_a_relu_between() -> None:
    found = losses(lambda x, w: jax.nn.relu(x @ w[0]) @ w[0], 1)
    expected = [1.3021931, 1.3783584, 1.3951261]
    np.testing.assert_allclose(found[20:23], expected, rtol=5e-4)


# --- what wrappers hand on ------------------------------------------------------------------------


@pytest.mark.fact("optimizers.ipu_optimizer_forward")
def test_wrappers_hand_everything_on() -> None:
    inner = MapGradientOptimizer(optax.adam(0.1), lambda g, v: 2 * g)
    opt, plain = IpuOptimizer(inner), optax.adam(0.1)
    params = {"w": jnp.arange(3.0)}
    gradients = compute_gradients(opt, params, params)
    np.testing.assert_array_equal(gradients["w"], [0, 2, 4])
    found, expected = (
        opt.apply_gradients(gradients, opt.init(params), params),
        plain.update(gradients, plain.init(params), params),
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    state = found[1]
    assert opt.get_name() == inner.get_name() == "chain"
    assert opt.get_slot_names(state) == ["count", "mu", "nu"]
    np.testing.assert_array_equal(opt.get_slot(state, "mu")["w"], state[0].mu["w"])
    assert opt.get_slot(state, "trace") is None
    assert len(opt.variables(state)) == 3
