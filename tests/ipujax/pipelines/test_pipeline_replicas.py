"""Pipelines on several replicas: the numbers are those of one big batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.numbers import same, use_ipus

COUNT, REPEAT, ROWS = 4, 2, 2
SIZE = 8  # 256 bytes of weights: more than what is never moved to streaming memory

VARIABLES = {
    f"w{i}": jnp.asarray(np.random.default_rng(i).normal(size=(SIZE, SIZE)) / 2, jnp.float32)
    for i in range(2)
}


def first(v: Any, x: Any, y: Any) -> Any:
    return jnp.tanh(x @ v["w0"]), y


def second(v: Any, h: Any, y: Any) -> Any:
    return jnp.mean((h @ v["w1"] - y) ** 2)


def elements(count: int) -> list[Any]:
    rng = np.random.default_rng(7)
    pairs = rng.normal(size=(count, 2, ROWS, SIZE)).astype(np.float32)
    return [(x, y) for x, y in pairs]


def across(loss: Any) -> Any:
    return OptimizerFunctionOutput(CrossReplicaOptimizer(optax.adam(0.05)), loss)


def alone(loss: Any) -> Any:
    return OptimizerFunctionOutput(optax.adam(0.05), loss)


def trained(
    replicas: int, engine: str, optimizer: Any = across, stages: Any = (first, second), **more: Any
) -> tuple[Any, Any]:
    """Variables and losses after `REPEAT` updates on so many replicas."""
    use_ipus(2 * replicas)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements(REPEAT * COUNT * replicas))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def fn(variables: Any) -> Any:
        return pipeline(
            list(stages),
            COUNT,
            repeat_count=REPEAT,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer,
            variables=variables,
            **{"reduction_method": "mean", **more},
        )

    variables, _ = ipu.compile(fn, engine=engine)(VARIABLES)
    return variables, outfeed.dequeue()


def one_big_batch(replicas: int) -> tuple[Any, np.ndarray]:
    """The same in plain JAX: one step for all micro-batches of all replicas, and their losses."""
    data = elements(REPEAT * COUNT * replicas)
    per_step = COUNT * replicas
    opt, variables = optax.adam(0.05), VARIABLES
    state = opt.init(variables)

    def loss(v: Any, x: Any, y: Any) -> Any:
        return second(v, *first(v, x, y))

    losses: list[Any] = []
    for step in range(REPEAT):
        x, y = map(np.stack, zip(*data[step * per_step : (step + 1) * per_step], strict=True))
        every, gradients = jax.vmap(jax.value_and_grad(loss), (None, 0, 0))(variables, x, y)
        gradients = jax.tree.map(lambda g: g.mean(0), gradients)
        updates, state = opt.update(gradients, state, variables)
        variables = optax.apply_updates(variables, updates)
        losses.append(every)
    return variables, np.concatenate(losses)


def check(replicas: int, engine: str, **more: Any) -> None:
    variables, (losses,) = trained(replicas, engine, **more)
    wanted, wanted_losses = one_big_batch(replicas)
    same(variables, wanted, exact=False)
    # Elements go round the replicas, so the outfeed has a row of all replicas for each micro-batch.
    shape = (REPEAT * COUNT, replicas) if replicas > 1 else (REPEAT * COUNT,)
    assert losses.shape == shape
    np.testing.assert_allclose(losses.reshape(-1), wanted_losses, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("replicas", "engine"), [(1, "replay"), (2, "fused"), (2, "replay"), (4, "replay")]
)
def test_replicas_times_stages_times_accumulation(replicas: int, engine: str) -> None:
    check(replicas, engine)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "how",
    [
        {"replicated_optimizer_state_sharding": True},
        {"replicated_optimizer_state_sharding": "on_tiles"},
        {"replicated_weight_sharding": True, "offload_gradient_accumulation_buffers": True},
        {"offload_weights": True, "offload_weight_update_variables": True},
        {
            "replicated_optimizer_state_sharding": True,
            "replicated_weight_sharding": True,
            "offload_weights": True,
            "offload_activations": True,
            "offload_gradient_accumulation_buffers": True,
        },
    ],
    ids=lambda how: " ".join(how) if len(how) < 5 else "everything",
)
def test_where_values_wait_changes_no_number(how: dict[str, Any]) -> None:
    check(2, "replay", **how)


@pytest.mark.exhaustive
def test_fused_with_everything_put_away() -> None:
    check(
        2,
        "fused",
        replicated_optimizer_state_sharding=True,
        replicated_weight_sharding=True,
        offload_weights=True,
        offload_activations=True,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_collectives_inside_stages(engine: str) -> None:
    """A stage that takes the mean over all replicas, and its gradient."""

    def centred(v: Any, h: Any, y: Any) -> Any:
        mean = cross_replica_sum(h.mean(0)) / 2
        return jnp.mean(((h - mean) @ v["w1"] - y) ** 2)

    variables, (losses,) = trained(2, engine, stages=(first, centred))

    def loss(v: Any, x: Any, y: Any) -> Any:
        h, y = first(v, x, y)  # [replicas, rows, size]
        h = h - h.mean((0, 1))
        return jnp.mean((h @ v["w1"] - y) ** 2, (1, 2))

    data = elements(REPEAT * COUNT * 2)
    opt, wanted = optax.adam(0.05), VARIABLES
    state = opt.init(wanted)
    wanted_losses: list[Any] = []
    for step in range(REPEAT):
        total = jax.tree.map(jnp.zeros_like, wanted)
        for number in range(COUNT):
            at = 2 * (step * COUNT + number)
            x, y = map(np.stack, zip(*data[at : at + 2], strict=True))
            wanted_losses.append(loss(wanted, x, y))
            own = jax.grad(lambda v, x=x, y=y: loss(v, x, y).sum())(wanted)
            total = jax.tree.map(lambda t, g: t + g / (2 * COUNT), total, own)
        updates, state = opt.update(total, state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    same(variables, wanted, exact=False)
    np.testing.assert_allclose(losses, np.stack(wanted_losses), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_without_the_optimizer_replicas_part_ways(engine: str) -> None:
    """The result then is what replica 0 has learnt from its own elements."""
    variables, _ = trained(2, engine, optimizer=alone)
    opt, wanted = optax.adam(0.05), VARIABLES
    state = opt.init(wanted)
    own = elements(REPEAT * COUNT * 2)[::2]
    for step in range(REPEAT):
        batch = own[step * COUNT : (step + 1) * COUNT]
        x, y = map(np.stack, zip(*batch, strict=True))
        gradients = jax.grad(
            lambda v, x=x, y=y: jnp.mean(jax.vmap(lambda a, b: second(v, *first(v, a, b)))(x, y))
        )(wanted)
        updates, state = opt.update(gradients, state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    same(variables, wanted, exact=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "how", ["replicated_optimizer_state_sharding", "replicated_weight_sharding"]
)
def test_what_replicas_do_not_share_cannot_be_sharded(how: str) -> None:
    """Fused keeps a whole on each replica; replay would make one of the parts of all."""
    with pytest.raises(ipu.errors.OptimizerError, match="CrossReplicaOptimizer") as caught:
        trained(2, "replay", optimizer=alone, **{how: True})
    assert "not all replicas have the same" in str(caught.value)
    alike, _ = trained(1, "replay", optimizer=alone, **{how: True})
    same(alike, trained(1, "replay", optimizer=alone)[0], exact=False)


@pytest.mark.exhaustive
def test_checks_and_replicas_together() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.floating_point_behaviour.div0 = True
    config.configure_ipu_system()

    def poisoned(v: Any, h: Any, y: Any) -> Any:
        return jnp.mean(h @ v["w1"] / (y[0, 0] - 5))

    data = elements(COUNT * 2)
    data[5][1][0, 0] = 5.0  # replica 1's third micro-batch
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def fn(variables: Any) -> Any:
        return pipeline(
            [first, poisoned],
            COUNT,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=across,
            variables=variables,
        )

    with pytest.raises(ipu.errors.FloatingPointError, match="division by zero"):
        ipu.compile(fn)(VARIABLES)
