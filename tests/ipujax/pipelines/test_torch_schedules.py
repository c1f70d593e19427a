"""PyTorch's schedules, as its own generators give them, are simulated alike and train alike."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.schedules import Phase

IPUS, MICRO_BATCHES = 2, 8
IN_TURN, IN_A_V = [0, 1, 0, 1], [0, 1, 1, 0]
MAPPINGS = {
    "ScheduleLoopedBFS": IN_TURN,
    "ScheduleInterleaved1F1B": IN_TURN,
    "ScheduleInterleavedZeroBubble": IN_TURN,
    "ScheduleZBVZeroBubble": IN_A_V,
    "ScheduleDualPipeV": IN_A_V,
}
Label = tuple[int, str, int]


def orders_of_torch(name: str) -> list[list[Label]]:
    """The tasks of each rank, in PyTorch's order; a whole backward pass is B and W."""
    module = importlib.import_module("torch.distributed.pipelining.schedules")
    made = object.__new__(getattr(module, name))
    facts = {
        "pp_group_size": IPUS,
        "_n_microbatches": MICRO_BATCHES,
        "n_local_stages": 2,
        "_stages": [None, None],
        "_num_stages": 2 * IPUS,
        "num_stages": 2 * IPUS,
        "microbatches_per_round": IPUS,
        "number_of_rounds": MICRO_BATCHES // IPUS,
    }
    vars(made).update(facts)
    actions = [made._calculate_single_rank_operations(rank) for rank in range(IPUS)]
    if name == "ScheduleInterleavedZeroBubble":
        made.pipeline_order = dict(enumerate(actions))
        by_rank = made._add_bubbles_to_actions(2 * IPUS)
        actions = [by_rank[rank] for rank in range(IPUS)]
    return [[label for action in each if action for label in labels_of(action)] for each in actions]


def labels_of(action: Any) -> list[Label]:
    """An action of PyTorch as tasks; I is the gradient of inputs."""
    if action.sub_actions is not None:
        return [label for part in action.sub_actions for label in labels_of(part)]
    letter, (stage, _, number, _) = action.computation_type.value, action
    letters = {"F": "F", "I": "B", "W": "W", "B": "BW"}[letter]
    return [(stage, each, number) for each in letters]


def splits(orders: list[list[Label]]) -> bool:
    """Whether gradients of weights are ever apart from those of inputs."""
    return any(
        task[1] == "B" and order[i + 1 : i + 2] != [(task[0], "W", task[2])]
        for order in orders
        for i, task in enumerate(order)
    )


def simulate_slowly(orders: list[list[Label]], seconds: dict[str, int]) -> int:
    """The makespan, by a loop over all orders that knows nothing of ours."""
    ends: dict[Label, int] = {}
    places, free, last = [0] * len(orders), [0] * len(orders), 2 * IPUS - 1
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        before = sum(places)
        for rank, order in enumerate(orders):
            while places[rank] < len(order):
                stage, letter, number = task = order[places[rank]]
                needed = {"F": [(stage - 1, "F")], "W": [(stage, "B")]}.get(
                    letter, [(stage, "F"), (stage + 1, "B")]
                )
                inputs = [(s, p, number) for s, p in needed if 0 <= s <= last]
                if not all(each in ends for each in inputs):
                    break
                start = max([free[rank], *(ends[each] for each in inputs)])
                ends[task] = free[rank] = start + seconds[letter]
                places[rank] += 1
        assert sum(places) > before, "the ranks wait for one another"
    return max(ends.values())


@pytest.mark.parametrize("name", MAPPINGS)
def test_makespans_and_gradients(name: str) -> None:
    pytest.importorskip("torch.distributed.pipelining.schedules")
    orders = orders_of_torch(name)
    merged = not splits(orders)
    given = [[t for t in order if not (merged and t[1] == "W")] for order in orders]
    schedule = schedules.build(
        lambda stages, micro_batches: given,
        stages=2 * IPUS,
        micro_batches=MICRO_BATCHES,
        training=True,
        ipus=MAPPINGS[name],
    )
    assert len(schedule.copies) == 1
    for forward, backward, weight in ((1, 1, 1), (3, 4, 2)):
        whole = backward + weight * merged
        seconds = {Phase.FORWARD: forward, Phase.BACKWARD: whole, Phase.WEIGHTS: weight}
        slow = simulate_slowly(given, {"F": forward, "B": whole, "W": weight})
        assert schedules.simulate(schedule, seconds).makespan == slow
    check_training(schedule, MAPPINGS[name])


def check_training(schedule: schedules.Schedule, mapping: list[int]) -> None:
    """An MLP's gradients are those of the plain step."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = IPUS
    config.configure_ipu_system()
    random = np.random.default_rng(3)
    weights = [random.normal(size=(8, 8), scale=0.5).astype(np.float32) for _ in mapping]
    x = random.normal(size=(16, 8)).astype(np.float32)

    def loss_fn(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for stage, w in enumerate(weights):
            with ipu.scopes.pipeline_stage(stage):
                x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    grad_fn = ipu.pipelining_ops.value_and_grad(
        loss_fn, micro_batches=MICRO_BATCHES, schedule=schedule, device_mapping=mapping
    )
    loss, gradients = ipu.compile(grad_fn, engine="replay")(weights, x)
    plain_loss, plain_gradients = jax.jit(jax.value_and_grad(loss_fn))(weights, x)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    for found, wanted in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
