"""Pipelines on real devices: one for each stage, for each replica, and the same numbers."""

from __future__ import annotations

import pytest

from tests.conftest import RunWithDevices

START = """
import jax, jax.numpy as jnp, numpy as np, optax
import ipujax as ipu
from ipujax import schedules
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.numbers import same, use_ipus

ROWS, SIZE = 2, 8

def where(array):
    return sorted(device.id for device in array.devices())

def variables(stages):
    return [
        jnp.asarray(np.random.default_rng(i).normal(size=(SIZE, SIZE)) / 2, jnp.float32)
        for i in range(stages)
    ]

def layer(number):
    return lambda v, x, y: (jnp.tanh(x @ v[number]), y)

def loss_of(v, x, y):
    return jnp.mean((x @ v[-1] - y) ** 2)

def elements(count):
    rng = np.random.default_rng(5)
    draw = lambda: rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    return [(draw(), draw()) for _ in range(count)]

def trained(stages, count, engine, schedule, replicas=1, calls=1, v=None, repeat=2, **more):
    def optimizer(loss):
        opt = optax.sgd(0.1)
        return OptimizerFunctionOutput(CrossReplicaOptimizer(opt) if replicas > 1 else opt, loss)

    use_ipus(stages * replicas)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements(repeat * calls * count * replicas))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def fn(v):
        return pipeline(
            [*map(layer, range(stages - 1)), loss_of], count, repeat_count=repeat,
            infeed_queue=infeed, outfeed_queue=outfeed, optimizer_function=optimizer,
            pipeline_schedule=schedule, reduction_method="mean", variables=v, **more,
        )

    run = ipu.compile(fn, engine=engine)
    v = variables(stages) if v is None else v
    for _ in range(calls):
        v, _ = run(v)
    return v, outfeed.dequeue()[0]

def by_hand(stages, per_step, steps):
    def loss(v, x, y):
        for number in range(stages - 1):
            x, y = layer(number)(v, x, y)
        return loss_of(v, x, y)

    v, losses = variables(stages), []
    data = elements(per_step * steps)
    step = jax.jit(jax.vmap(jax.value_and_grad(loss), (None, 0, 0)))
    for i in range(steps):
        x, y = map(np.stack, zip(*data[i * per_step : (i + 1) * per_step]))
        every, gradients = step(v, x, y)
        v = [w - 0.1 * g.mean(0) for w, g in zip(v, gradients)]
        losses.append(every)
    return v, np.concatenate(losses)

def check(stages, count, engine, schedule, replicas=1, calls=1, **more):
    v, losses = trained(stages, count, engine, schedule, replicas, calls, **more)
    wanted, wanted_losses = by_hand(stages, count * replicas, 2 * calls)
    for mine, theirs in zip(v, wanted):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(losses.reshape(-1), wanted_losses, rtol=1e-3, atol=1e-5)
    return v
"""


def test_four_stages_on_four_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
for engine, schedule in (
    ("replay", PipelineSchedule.Grouped),
    ("replay", PipelineSchedule.Interleaved),
    ("replay", schedules.one_f_one_b),
    ("auto", PipelineSchedule.Grouped),
):
    v = check(4, 8, engine, schedule)

# Results are arrays like any other: on the first device, for JAX and for the next call.
assert all(where(w) == [0] for w in v), [where(w) for w in v]
same(jax.jit(lambda v: v[0] @ v[-1])(v), v[0] @ v[-1], exact=False)
check(4, 8, "replay", PipelineSchedule.Grouped, calls=2, offload_activations=True)
""",
    )


@pytest.mark.exhaustive
def test_replicas_of_two_stages_spread_over_devices(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        8,
        START
        + """
for engine in ("replay", "auto"):
    check(2, 4, engine, PipelineSchedule.Grouped, replicas=4)
check(2, 4, "replay", schedules.one_f_one_b, replicas=2, calls=2)
check(2, 4, "replay", PipelineSchedule.Sequential, replicas=4,
      replicated_optimizer_state_sharding=True, replicated_weight_sharding=True)

# Eight stages, one for each device.
check(8, 16, "replay", PipelineSchedule.Grouped, repeat=2)
""",
    )


@pytest.mark.exhaustive
def test_each_stage_runs_on_its_device(run_with_devices: RunWithDevices) -> None:
    run_with_devices(
        4,
        START
        + """
from ipujax.engine import replay

seen = {}
original = replay.Machine.build_execute

def watched(self, node, *rest):
    step = original(self, node, *rest)

    def run(values, session):
        step(values, session)
        for value in node.writes:
            seen.setdefault(node.ipu, set()).update(where(values[value, node.ipu]))

    return run

replay.Machine.build_execute = watched
# Tasks that are dispatched in pairs do not pass here; those of this schedule are never paired.
check(4, 4, "replay", PipelineSchedule.Sequential)
assert sorted(seen) == [0, 1, 2, 3] and all(len(ids) == 1 for ids in seen.values()), seen
assert len(set.union(*seen.values())) == 4, seen
""",
    )
