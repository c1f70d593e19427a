"""Leaves without gradients, and gradients that belong to other variables."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import OptimizerError
from ipujax.loops import repeat
from ipujax.optimizers import (
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    IpuOptimizer,
    MapGradientOptimizer,
    ShardedOptimizer,
    apply_gradients,
)
from ipujax.pipelining_ops import OptimizerFunctionOutput, check_pipeline
from ipujax.training import Pipeline, Training
from lowering import marks
from tests.ipujax.feeding import configure, infeed
from tests.ipujax.pipelining import run_pipeline

CLIPPED = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, weight_decay=0.1))
OPTIMIZERS: dict[str, Any] = {
    "sgd": optax.sgd(0.1, 0.9),
    "clip": CLIPPED,
    "lamb": optax.lamb(0.1),
    "adafactor": optax.adafactor(0.1),
    "muon": optax.contrib.muon(0.1),
    "noise": optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.sgd(0.1)),
    "zero_nans": optax.chain(optax.zero_nans(), optax.sgd(0.1)),
    "ema": optax.chain(optax.sgd(0.1), optax.ema(0.9)),
    "several": optax.MultiSteps(optax.adam(0.1), 2),
    "schedule_free": optax.contrib.schedule_free_sgd(0.1),
    "mask": optax.masked(CLIPPED, {"w": True, "v": True, "n": True, "on": False, "key": False}),
    "flat": optax.flatten(optax.sgd(0.1, 0.9)),
    "groups": optax.partition(
        {"a": optax.adam(0.1), "b": optax.sgd(0.1)},
        {"w": "a", "v": "b", "n": "a", "on": "b", "key": "b"},
    ),
}
TRAINED = {"w": np.ones((2, 3), np.float32), "v": np.full(3, 2, np.float32)}
OTHERS = {"n": np.int32(2), "on": np.array([True, False])}
KEY = {"key": jax.random.key(5)}
ELEMENTS = [np.full(3, i, np.float32) for i in range(1, 9)]


def first(v: Any, x: Any) -> Any:
    scale = v["n"] * v["on"].sum() if "n" in v else 2
    return x * v["w"] * scale


def second(v: Any, h: Any) -> Any:
    return (h * v["v"]).sum()


def loss_of(v: Any, x: Any) -> Any:
    return second(v, first(v, x))


def by_optax(optimizer: Any, micro_batches: int) -> Any:
    """The trained variables alone, after all elements, by plain JAX and optax."""
    variables = jax.tree.map(jnp.asarray, TRAINED)
    state = optimizer.init(variables)
    for start in range(0, len(ELEMENTS), micro_batches):
        each = [jax.grad(loss_of)(variables, x) for x in ELEMENTS[start : start + micro_batches]]
        total = jax.tree.map(lambda *leaves: sum(leaves), *each)
        updates, state = optimizer.update(total, state, variables)
        variables = optax.apply_updates(variables, updates)
    return variables


def only_for(name: str, names: set[str]) -> Any:
    """An optimizer of the table, for variables of these names only."""
    if name == "mask":
        return optax.masked(CLIPPED, dict.fromkeys(names, True))
    if name == "groups":
        groups = {"a": optax.adam(0.1), "b": optax.sgd(0.1)}
        return optax.partition(groups, {"w": "a", "v": "b"})
    return OPTIMIZERS[name]


def check_trained(variables: Any, optimizer: Any, micro_batches: int) -> None:
    wanted = by_optax(optimizer, micro_batches)
    for name, array in wanted.items():
        np.testing.assert_allclose(variables[name], array, 1e-5, 1e-6)
    assert variables["n"].dtype == np.int32
    assert int(variables["n"]) == 2
    assert list(variables["on"]) == [True, False]
    if "key" in variables:
        assert bool(variables["key"] == KEY["key"])


def taken_by(name: str) -> dict[str, Any]:
    """Variables that the optimizer's own `init` takes."""
    return {**TRAINED, **OTHERS, **(KEY if name in ("sgd", "clip", "mask", "groups") else {})}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_pipeline_trains_the_others(name: str, is_given: bool) -> None:
    """The state that is given, and the one that comes back, are as `opt.init(variables)`."""
    configure(2)
    optimizer, variables = OPTIMIZERS[name], taken_by(name)
    if name == "schedule_free":  # its `init` keeps sums in the lowest dtype of all variables
        is_given = False
    whole = optimizer.init(jax.tree.map(jnp.asarray, variables))
    (trained, state), _ = run_pipeline(
        [first, second],
        4,
        data=ELEMENTS,
        variables=variables,
        state=whole if is_given else None,
        repeat_count=2,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        device_mapping=[0, 1],
    )
    check_trained(trained, only_for(name, set(TRAINED)), 4)
    assert jax.tree.structure(state) == jax.tree.structure(whole)
    if name != "schedule_free":
        assert jax.tree.map(jnp.result_type, state) == jax.tree.map(jnp.result_type, whole)


def test_a_state_of_the_trained_ones_alone_is_taken() -> None:
    configure(2)
    masked = {**TRAINED, "n": optax.MaskedNode(), "on": optax.MaskedNode()}
    state = CLIPPED.init(jax.tree.map(jnp.asarray, masked))
    (trained, after), _ = run_pipeline(
        [first, second],
        4,
        data=ELEMENTS,
        variables={**TRAINED, **OTHERS},
        state=state,
        repeat_count=2,
        optimizer_function=lambda loss: OptimizerFunctionOutput(CLIPPED, loss),
    )
    check_trained(trained, CLIPPED, 4)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_marked_stages_train_the_others() -> None:
    configure(2)

    def marked(v: Any, x: Any) -> Any:
        with jax.named_scope(marks.write_mark(marks.STAGE, "0")):
            h = first(v, x)
        with jax.named_scope(marks.write_mark(marks.STAGE, "1")):
            return second(v, h)

    training = Training(Pipeline(marked), CLIPPED, accumulation=4)
    state = training.fit(training.init({**TRAINED, **OTHERS, **KEY}), ELEMENTS, 2)
    check_trained(state.variables, CLIPPED, 4)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_state_is_offloaded_and_sharded_over_replicas(is_sharded: bool) -> None:
    """What an optimizer keeps for integers and keys goes along, and stays as it is."""
    configure(4)
    optimizer = CrossReplicaOptimizer(CLIPPED)
    (trained, _), _ = run_pipeline(
        [first, second],
        4,
        data=[x for x in ELEMENTS for _ in range(2)],
        variables={**TRAINED, **OTHERS, **KEY},
        repeat_count=2,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        offload_weights=True,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=is_sharded,
        replicated_weight_sharding=is_sharded,
    )
    check_trained(trained, CLIPPED, 4)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_training_trains_the_others(accumulation: int) -> None:
    configure(1)
    training = Training(loss_of, CLIPPED, accumulation=accumulation)
    state = training.init({**TRAINED, **OTHERS, **KEY})
    state = training.fit(state, ELEMENTS, len(ELEMENTS) // accumulation)
    check_trained(state.variables, CLIPPED, accumulation)


def test_check_pipeline_leaves_them_alone() -> None:
    configure(2)
    checked = check_pipeline(
        [first, second],
        4,
        infeed_queue=infeed(ELEMENTS),
        variables={**TRAINED, **OTHERS, **KEY},
        optimizer_function=lambda loss: OptimizerFunctionOutput(CLIPPED, loss),
    )
    checked.raise_if_different()


WRAPPERS: dict[str, Any] = {
    "IpuOptimizer": IpuOptimizer,
    "CrossReplicaOptimizer": CrossReplicaOptimizer,
    "MapGradientOptimizer": lambda opt: MapGradientOptimizer(opt, lambda g, _: g * 1.0),
    "ShardedOptimizer": ShardedOptimizer,
    "GradientAccumulationOptimizer": lambda opt: GradientAccumulationOptimizer(
        opt, 1, verify_usage=False
    ),
    "GradientAccumulationOptimizerV2": lambda opt: GradientAccumulationOptimizerV2(opt, 1),
    "CrossReplicaGradientAccumulationOptimizerV2": functools.partial(
        CrossReplicaGradientAccumulationOptimizerV2, num_mini_batches=1
    ),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_in_loops_leave_them_alone(wrapper: str) -> None:
    """Gradients of integers, as `allow_int` gives them, are of float0."""
    configure(2)
    optimizer = WRAPPERS[wrapper](CLIPPED)
    variables = jax.tree.map(jnp.asarray, {**TRAINED, **OTHERS})

    def step(v: Any, state: Any, number: Any) -> Any:
        x = jnp.full(3, number + 1, jnp.float32)
        gradients = jax.grad(loss_of, allow_int=True)(v, x)
        updates, state = optimizer.update(gradients, state, v)
        return optax.apply_updates(v, updates), state, number + 1

    def train(v: Any) -> Any:
        return repeat(8, step, [v, optimizer.init(v), jnp.int32(0)])[0]

    check_trained(ipu.compile(train)(variables), CLIPPED, 1)


MALFORMED = {
    "other names": {"v": np.ones(3, np.float32)},
    "one too many": {"w": np.ones(3, np.float32), "v": np.ones(3, np.float32)},
    "another shape": {"w": np.ones(4, np.float32)},
    "one missing": {},
    "integers": {"w": np.ones(3, np.int32)},
    "complex": {"w": np.ones(3, np.complex64)},
    "no array": {"w": "text"},
    "another container": [np.ones(3, np.float32)],
    "nested": {"w": {"w": np.ones(3, np.float32)}},
    "nothing": None,
}


@pytest.mark.parametrize("malformed", MALFORMED)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_gradients_of_other_variables_are_refused(wrapper: str, malformed: str) -> None:
    optimizer, gradients = WRAPPERS[wrapper](optax.adam(0.1)), MALFORMED[malformed]
    variables = {"w": jnp.ones(3)}
    state = optimizer.init(variables)
    for call in (
        lambda: optimizer.apply_gradients(gradients, state, variables),
        lambda: optimizer.update(gradients, state, variables),
        lambda: optimizer.compute_gradients(gradients, variables),
        lambda: apply_gradients(optimizer, gradients, state, variables),
        lambda: apply_gradients(
            optax.adam(0.1), gradients, optax.adam(0.1).init(variables), variables
        ),
    ):
        with pytest.raises(OptimizerError, match="was given") as caught:
            call()
        assert isinstance(caught.value, ValueError)
    if malformed in ("other names", "another shape", "one missing"):
        with pytest.raises(OptimizerError):
            optimizer.apply_gradients(gradients, state)


def test_what_belongs_together_is_taken() -> None:
    """A gradient may be None, and of another precision than its variable."""
    optimizer = IpuOptimizer(optax.sgd(0.5))
    variables = {"w": jnp.ones(3), "v": jnp.ones(2, jnp.bfloat16), "z": jnp.ones(2, jnp.complex64)}
    gradients = {"w": None, "v": jnp.ones(2), "z": jnp.ones(2, jnp.complex64) * 1j}
    updates, _ = optimizer.apply_gradients(gradients, optimizer.init(variables), variables)
    assert updates["w"] is None
    np.testing.assert_allclose(updates["z"], -0.5j)


def test_a_state_of_another_optimizer_is_refused() -> None:
    optimizer, variables = IpuOptimizer(optax.sgd(0.1, 0.9)), {"w": jnp.ones(3)}
    with pytest.raises(OptimizerError, match="AttributeError"):
        optimizer.apply_gradients(variables, optax.adam(0.1).init(variables), variables)
