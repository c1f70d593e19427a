"""Optimizers as transformations of optax: alone, inside optax, in loops and over replicas."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import optimizers
from ipujax.errors import OptimizerError, OptimizerTypeError
from ipujax.loops import repeat
from ipujax.optimizers import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    IpuOptimizer,
    MapGradientOptimizer,
    ShardedOptimizer,
    apply_gradients,
    compute_gradients,
    maps_gradients,
)
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import configure, infeed, outfeed

PARAMS = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(40)}
GRADIENTS = jax.tree.map(lambda x: 0.1 * x + 1, PARAMS)
CLASSES = [
    value
    for value in (getattr(optimizers, name) for name in dir(optimizers))
    if inspect.isclass(value) and issubclass(value, IpuOptimizer)
]
TRANSPARENT: dict[str, Callable[[Any], Any]] = {
    "IpuOptimizer": IpuOptimizer,
    "CrossReplicaOptimizer": CrossReplicaOptimizer,
    "ShardedOptimizer": ShardedOptimizer,
    "MapGradientOptimizer": lambda opt: MapGradientOptimizer(opt, lambda g, v: g),
    "GradientAccumulationOptimizerV2": lambda opt: GradientAccumulationOptimizerV2(opt, 1),
    "CrossReplicaGradientAccumulationOptimizer": lambda opt: (
        CrossReplicaGradientAccumulationOptimizer(opt, 1, verify_usage=False)
    ),
}


def assert_same(found: Any, expected: Any, **tolerance: float) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, **tolerance), found, expected)


def steps(opt: Any, count: int, **extra: Any) -> Any:
    """The parameters after some jitted steps of optax with `GRADIENTS`."""
    step = jax.jit(lambda p, s: opt.update(GRADIENTS, s, p, **extra))
    params, state = PARAMS, opt.init(PARAMS)
    for _ in range(count):
        updates, state = step(params, state)
        params = optax.apply_updates(params, updates)
    return params


# --- as transformations of optax ------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return {name: steps(place(optax.sgd(0.1, 0.9)), 2) for name, place in PLACES.items()}


PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda opt: opt,
    "chain": lambda opt: optax.chain(optax.clip(0.5), opt),
    "multi_transform": lambda opt: optax.multi_transform(
        {"one": opt, "two": optax.sgd(0.1)}, {"w": "one", "b": "two"}
    ),
    "MultiSteps": lambda opt: optax.MultiSteps(opt, 2),
    "masked": lambda opt: optax.masked(opt, {"w": True, "b": False}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrap", TRANSPARENT.values(), ids=TRANSPARENT)
def test_they_work_around_and_inside_transformations_of_optax(
    wrap: Callable[[Any], Any], expected: dict[str, Any]
) -> None:
    plain = optax.sgd(0.1, 0.9)
    assert isinstance(wrap(plain), optax.GradientTransformationExtraArgs)
    assert optax.with_extra_args_support(opt := wrap(plain)) is opt
    for name, place in PLACES.items():
        assert_same(steps(place(wrap(plain)), 2), expected[name], rtol=1e-6)
    for name in ("chain", "MultiSteps"):
        assert_same(steps(wrap(PLACES[name](plain)), 2), expected[name], rtol=1e-6)


def test_they_come_apart_as_pairs_of_functions() -> None:
    opt = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: 3 * g)
    init, update = opt
    updates, _ = update(GRADIENTS, init(PARAMS), PARAMS)
    assert_same(updates, jax.tree.map(lambda g: -3 * g, GRADIENTS))
    assert opt != MapGradientOptimizer(optax.sgd(1.0), lambda g, v: 3 * g)
    assert len({opt, opt}) == 1
    for copied in (copy.copy(opt), copy.deepcopy(opt)):
        assert_same(steps(copied, 2), steps(opt, 2))
    assert repr(CrossReplicaOptimizer(opt)) == "CrossReplicaOptimizer(MapGradientOptimizer(chain))"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrap", TRANSPARENT.values(), ids=TRANSPARENT)
def test_extra_arguments_reach_who_takes_them(wrap: Callable[[Any], Any]) -> None:
    polyak = optax.polyak_sgd(max_learning_rate=0.3)
    assert_same(steps(wrap(polyak), 2, value=1.5), steps(polyak, 2, value=1.5), rtol=1e-6)
    plain = optax.GradientTransformation(*optax.sgd(0.1))  # whose update takes none
    plain = optax.GradientTransformation(plain.init, lambda u, s, p=None: (u, s))
    assert_same(steps(wrap(plain), 1, value=1.5), steps(plain, 1))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("given", [optax.sgd, None, 0.1, optax.GradientTransformation, "sgd"])
def test_what_is_no_transformation_is_refused(cls: type, given: Any) -> None:
    needed = {"num_mini_batches": 2, "gradient_mapping_function": jnp.add}
    names = inspect.signature(cls.__init__).parameters
    arguments = {name: value for name, value in needed.items() if name in names}
    with pytest.raises(OptimizerTypeError, match=r"GradientTransformation, not") as caught:
        cls(given, **arguments)
    assert isinstance(caught.value, TypeError)
    assert f"of type {type(given).__name__}" in str(caught.value)


# --- the two moments of a step --------------------------------------------------------------------


def test_mapping_is_the_first_moment_and_update_has_both() -> None:
    inner = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: g + v)
    opt = CrossReplicaOptimizer(MapGradientOptimizer(inner, lambda g, v: 2 * g))  # outermost last
    mapped = jax.tree.map(lambda g, v: 2 * (g + v), GRADIENTS, PARAMS)
    assert_same(compute_gradients(opt, GRADIENTS, PARAMS), mapped)
    state = opt.init(PARAMS)
    second, _ = apply_gradients(opt, mapped, state, PARAMS)
    assert_same(second, jax.tree.map(jnp.negative, mapped))
    assert_same(opt.update(GRADIENTS, state, PARAMS)[0], second)


def test_who_maps_gradients() -> None:
    mapping = MapGradientOptimizer(optax.sgd(1.0), jnp.add)
    assert maps_gradients(mapping)
    assert maps_gradients(GradientAccumulationOptimizerV2(ShardedOptimizer(mapping), 2))
    assert not maps_gradients(CrossReplicaOptimizer(optax.sgd(1.0)))
    assert not maps_gradients(optax.sgd(1.0))


def test_every_mini_batch_is_mapped_before_it_is_accumulated() -> None:
    for opt in (
        GradientAccumulationOptimizerV2(MapGradientOptimizer(optax.sgd(1.0), lambda g, v: g**2), 2),
        MapGradientOptimizer(GradientAccumulationOptimizerV2(optax.sgd(1.0), 2), lambda g, v: g**2),
    ):
        state = opt.init(jnp.float32(0))
        _, state = opt.update(jnp.float32(2), state)
        updates, _ = opt.update(jnp.float32(3), state)
        assert updates == -13


def test_the_moments_of_a_plain_transformation() -> None:
    opt = optax.sgd(0.1)
    assert compute_gradients(opt, GRADIENTS, PARAMS) is GRADIENTS
    assert_same(
        apply_gradients(opt, GRADIENTS, opt.init(PARAMS), PARAMS),
        opt.update(GRADIENTS, opt.init(PARAMS), PARAMS),
    )
    with pytest.raises(OptimizerTypeError, match=r"1 further positional argument and `flag`"):
        compute_gradients(opt, GRADIENTS, PARAMS, 1, flag=2)
    identity = optax.identity()
    with pytest.raises(OptimizerTypeError, match="`value`, which the update"):
        apply_gradients(identity, GRADIENTS, identity.init(PARAMS), PARAMS, value=1)
    with pytest.raises(OptimizerTypeError, match="1 further positional"):
        apply_gradients(opt, GRADIENTS, opt.init(PARAMS), PARAMS, 1)


def test_a_wrapper_of_the_users_own() -> None:
    class Scaled(IpuOptimizer):
        def compute_gradients(
            self, gradients: Any, variables: Any, factor: float = 1.0, *, shift: float = 0.0
        ) -> Any:
            return jax.tree.map(lambda g: factor * g + shift, gradients)

    opt = CrossReplicaOptimizer(Scaled(optax.sgd(0.1)))
    found = compute_gradients(opt, GRADIENTS, PARAMS, 2.0, shift=1.0)
    assert_same(found, jax.tree.map(lambda g: 2 * g + 1, GRADIENTS))


def test_a_mapping_function_that_needs_variables_says_so() -> None:
    opt = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: g + v)
    with pytest.raises(TypeError) as caught:
        opt.update(GRADIENTS, opt.init(PARAMS))
    assert "without `params`" in caught.value.__notes__[0]
    opt = MapGradientOptimizer(optax.sgd(1.0), lambda g, v: 2 * g)
    assert opt.update(jnp.float32(1), opt.init(jnp.float32(0)))[0] == -2


def test_gradients_that_are_none_stay_so() -> None:
    for wrap in TRANSPARENT.values():
        opt = wrap(optax.sgd(1.0))
        updates, _ = opt.update({"w": PARAMS["w"], "b": None}, opt.init(PARAMS), PARAMS)
        assert updates["b"] is None
        assert_same(updates["w"], -PARAMS["w"])


# --- slots ----------------------------------------------------------------------------------------


def test_slots_are_those_of_the_innermost_optimizer() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1, 0.9), 2)
    state = opt.init(PARAMS)
    assert opt.get_slot_names(state) == ["trace"]
    assert_same(opt.get_slot(state, "trace"), jax.tree.map(jnp.zeros_like, PARAMS))
    assert len(opt.variables(state)) == 2


def test_a_slot_that_exists_twice_is_refused() -> None:
    opt = IpuOptimizer(optax.chain(optax.trace(0.9), optax.trace(0.5)))
    assert opt.get_slot_names(opt.init(PARAMS)) == ["trace"]
    with pytest.raises(OptimizerError, match="2 parts of the optimizer's state"):
        opt.get_slot(opt.init(PARAMS), "trace")


# --- accumulation ---------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("method", "scale"), [("SUM", 3), ("MEAN", 1), ("RUNNING_MEAN", 1)])
def test_accumulation_is_one_step_with_the_reduced_gradients(method: str, scale: float) -> None:
    opt = GradientAccumulationOptimizerV2(optax.adam(0.1), 3, reduction_method=method)
    plain = optax.chain(optax.scale(scale), optax.adam(0.1))
    assert_same(steps(opt, 2), PARAMS)
    assert_same(steps(opt, 6), steps(plain, 2), rtol=1e-6)


@pytest.mark.parametrize("cls", [GradientAccumulationOptimizer, GradientAccumulationOptimizerV2])
def test_momentum_moves_once_per_update(cls: Any) -> None:
    plain = optax.chain(optax.scale(4), optax.sgd(0.1, 0.9, nesterov=True))
    opt = cls(optax.sgd(0.1, 0.9, nesterov=True), 4)
    assert_same(steps(opt, 12), steps(plain, 3), rtol=1e-6)


def test_running_mean_stays_in_range() -> None:
    opt = GradientAccumulationOptimizerV2(optax.identity(), 4, reduction_method="running_mean")
    gradient = jnp.float16(60000)
    updates, state = opt.update(gradient, opt.init(gradient))
    for _ in range(3):
        updates, state = opt.update(gradient, state)
    np.testing.assert_allclose(updates, 60000, rtol=2e-3)


@pytest.mark.parametrize("dtype", [None, jnp.float32, "float32", lambda v: np.float32])
def test_dtypes_of_accumulators(dtype: Any) -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1), 2, dtype=dtype)
    state = opt.init(jnp.ones(2, jnp.float16))
    assert state.accumulated.dtype == (jnp.float16 if dtype is None else jnp.float32)


def test_a_state_that_would_change_its_dtype_is_refused() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1, 0.9), 2, dtype=jnp.float32)
    params = jnp.ones(2, jnp.float16)
    with pytest.raises(OptimizerError, match=r"float16\[2\] into float32\[2\].*") as caught:
        opt.update(params, opt.init(params), params)
    assert "accumulator_dtype=jnp.float32" in str(caught.value)
    opt = GradientAccumulationOptimizerV2(
        optax.sgd(0.1, 0.9, accumulator_dtype=jnp.float32), 2, dtype=jnp.float32
    )
    _, state = opt.update(params, opt.init(params), params)
    assert {x.dtype.name for x in jax.tree.leaves(state.inner_state)} == {"float32"}
    assert "tree_cast" in str(caught.value)
    cast = optax.stateless(lambda g, p: optax.tree_utils.tree_cast(g, jnp.float16))
    opt = GradientAccumulationOptimizerV2(
        optax.chain(cast, optax.sgd(0.1, 0.9)), 2, dtype=jnp.float32
    )
    updates, _ = opt.update(params, opt.init(params), params)
    assert updates.dtype == jnp.float16


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"num_mini_batches": 0}, OptimizerError, "give at least 1"),
        ({"num_mini_batches": 2.0}, OptimizerTypeError, "of type float"),
        ({"num_mini_batches": True}, OptimizerTypeError, "of type bool"),
        ({"dtype": jnp.int32}, OptimizerTypeError, "jnp.inexact"),
        ({"dtype": "float31"}, OptimizerTypeError, "jnp.inexact"),
        ({"reduction_method": "max"}, OptimizerError, "no reduction method 'max'"),
        ({"offload_weight_update_variables": "yes"}, OptimizerTypeError, "True, False or None"),
        (
            {
                "offload_weight_update_variables": False,
                "replicated_optimizer_state_sharding": True,
            },
            OptimizerError,
            "to be offloaded",
        ),
    ],
)
def test_impossible_arguments(arguments: dict[str, Any], error: type, match: str) -> None:
    for cls in (GradientAccumulationOptimizerV2, CrossReplicaGradientAccumulationOptimizerV2):
        with pytest.raises(error, match=match):
            cls(optax.sgd(0.1), **{"num_mini_batches": 2, **arguments})


def test_the_first_version_is_for_gradient_descent() -> None:
    schedule = optax.linear_schedule(0.1, 0.0, 10)
    for cls in (GradientAccumulationOptimizer, CrossReplicaGradientAccumulationOptimizer):
        for opt in (
            optax.sgd(0.1),
            optax.sgd(schedule, 0.9),
            optax.chain(optax.clip(1.0), optax.sgd(0.1, 0.9)),
            optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
            MapGradientOptimizer(optax.sgd(0.1), jnp.add),
        ):
            cls(opt, 2).init(PARAMS)
        for opt in (
            optax.adam(0.1),
            MapGradientOptimizer(optax.rmsprop(0.1), jnp.add),
            optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
        ):
            with pytest.raises(OptimizerError, match=r"GradientAccumulationOptimizerV2"):
                cls(opt, 2)
            cls(opt, 2, verify_usage=False).init(PARAMS)
        parts = optax.multi_transform(
            {"w": optax.sgd(0.1), "b": optax.adam(0.1)}, {"w": "w", "b": "b"}
        )
        with pytest.raises(OptimizerError, match="ScaleByAdamState"):
            cls(parts, 2).init(PARAMS)  # what it is shows with the parameters only


def test_states_with_random_keys() -> None:
    opt = GradientAccumulationOptimizerV2(optax.noisy_sgd(0.1, key=jax.random.key(0)), 2, True)
    steps(opt, 2)


def test_a_state_of_another_optimizer_is_refused() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1, 0.9), 2)
    with pytest.raises(OptimizerTypeError, match="GradientAccumulationState, not"):
        opt.update(GRADIENTS, opt.wrapped.init(PARAMS), PARAMS)


# --- compiled loops -------------------------------------------------------------------------------


def loss(params: Any, x: Any) -> Any:
    return jnp.mean(jnp.square(x @ params["w"] - 1.0))


def program(opt: Any, count: Any, data: np.ndarray) -> Callable[[Any, Any], Any]:
    source = infeed(data)

    def body(params: Any, state: Any, x: Any) -> Any:
        updates, state = opt.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    return lambda params, state: repeat(count, body, [params, state], source)


WEIGHTS = {"w": jnp.linspace(-1, 1, 40)}
DATA = np.random.default_rng(0).normal(size=(16, 2, 40)).astype(np.float32)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize(
    "options",
    [
        (),
        (True,),
        (True, True),
        (True, None),
    ],
    ids=["on_chip", "offloaded", "sharded", "sharded_by_none"],
)
def test_accumulated_replicas_are_one_big_batch(engine: str, replicas: int, options: Any) -> None:
    configure(replicas)
    opt = CrossReplicaGradientAccumulationOptimizerV2(
        optax.adam(0.01), 2, *options, reduction_method="MEAN"
    )
    run = ipu.compile(program(opt, 4, DATA), engine=engine)
    found, _ = run(WEIGHTS, opt.init(WEIGHTS))
    plain, params = optax.adam(0.01), WEIGHTS
    state = plain.init(params)
    for batch in DATA[: 4 * replicas].reshape(2, -1, 40):
        updates, state = plain.update(jax.grad(loss)(params, batch), state, params)
        params = optax.apply_updates(params, updates)
    assert_same(found, params, rtol=1e-5, atol=1e-6)


def test_replicas_on_devices_of_their_own(run_with_devices: RunWithDevices) -> None:
    source = """
import jax.numpy as jnp, optax
import ipujax as ipu
from ipujax.optimizers import CrossReplicaGradientAccumulationOptimizerV2
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
opt = CrossReplicaGradientAccumulationOptimizerV2(optax.sgd(1.0, 0.5), 2)
def body(params, state):
    gradient = jnp.float32(1) + ipu.replication_ops.replication_index()
    updates, state = opt.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
for engine in ("fused", "replay"):
    run = ipu.compile(lambda p, s: ipu.loops.repeat(4, body, [p, s]), engine=engine)
    print(float(run(jnp.float32(0), opt.init(jnp.float32(0)))[0]))
"""
    assert run_with_devices(2, source).split() == ["-7.5", "-7.5"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_put_away_can_be_read_anywhere(replicas: int, sharded: bool) -> None:
    """By a kernel, an outfeed, stacked rows, slices, and loops as a constant or a variable."""
    configure(2 * replicas)
    opt = CrossReplicaGradientAccumulationOptimizerV2(optax.sgd(0.1, 0.9), 2, True, sharded)
    weights = jnp.linspace(-1, 1, 80).reshape(40, 2)

    def run(engine: str) -> Any:
        source, sink = infeed(itertools.cycle(DATA)), outfeed()

        def step(params: Any, state: Any, x: Any) -> Any:
            (momentum,) = jax.tree.leaves(state.inner_state)
            gradient = jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(params)
            updates, state = opt.update(gradient + 0.01 * momentum, state, params)
            sink.enqueue(jax.tree.leaves(state.inner_state)[0])
            with ipu.scopes.ipu_shard(1):
                params = optax.apply_updates(params, updates)
            return params, state

        def row(carry: Any, row: Any) -> Any:
            total, momentum = carry
            with ipu.scopes.ipu_shard(0):
                row = row * 2
            with ipu.scopes.ipu_shard(1):
                return (total + row, momentum), momentum

        def function(params: Any, state: Any) -> Any:
            params, state = repeat(4, step, [params, state], source)
            with ipu.scopes.ipu_shard(0):
                (momentum,) = jax.tree.leaves(state.inner_state)
            constant = repeat(3, lambda sum, x: sum + x @ momentum, [jnp.zeros((2, 2))], source)
            variable, kept = repeat(3, lambda m, x: m + (x @ m).sum(), [momentum], source), momentum
            rows = jax.lax.scan(row, (jnp.zeros(2), momentum), momentum)
            return params, state, constant, variable, kept, rows

        results = ipu.compile(function, engine=engine)(weights, opt.init(weights))
        return results, sink.dequeue()

    assert_same(run("replay"), run("fused"), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("replicas", [1, 2])
def test_what_is_put_away_comes_with_the_end_of_a_data_set(replicas: int) -> None:
    configure(replicas)
    opt = CrossReplicaGradientAccumulationOptimizerV2(optax.sgd(0.1, 0.9), 1, True)
    carried: list[Any] = []
    for engine in ("fused", "replay"):
        run = ipu.compile(program(opt, 4, DATA[: 2 * replicas]), engine=engine)
        with pytest.raises(ipu.errors.OutOfRangeError) as caught:
            run(WEIGHTS, opt.init(WEIGHTS))
        carried.append(caught.value.carried)
    assert_same(*carried, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("minimum", "offloaded"), [(128, 2), (24, 4), (1024, 0)])
def test_offloading_shows_in_the_program(minimum: int, offloaded: int) -> None:
    """Two moments of `b`, 160 bytes each, and two of `w`, 24 bytes each.

    Each is stored before the loop and by every update, and loaded by every update and after it.
    """
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.optimizations.minimum_remote_tensor_size = minimum
    config.configure_ipu_system()
    for options in ((), (False,), (True,), (True, True), (None, True)):
        opt = GradientAccumulationOptimizerV2(optax.adam(0.01), 2, *options)
        body = lambda params, state, opt=opt: opt.update(params, state, params)  # noqa: E731
        run = ipu.compile(lambda p, s, body=body: repeat(2, body, [p, s]))
        text = run.lower(PARAMS, opt.init(PARAMS)).as_text()
        count = 0 if options == (False,) else 2 * offloaded
        moves = "store ipu 0 to streaming memory", "load ipu 0 from streaming memory"
        assert [text.count(f" {move}") for move in moves] == [count] * 2
        assert text.count("sharded") == (2 * count if len(options) > 1 else 0)


def test_the_innermost_loop_counts() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.1), 3)

    def step(params: Any, state: Any) -> Any:
        updates, state = opt.update(params, state, params)
        return optax.apply_updates(params, updates), state

    def nested(outer: Any, inner: Any) -> Any:
        def body(params: Any, state: Any) -> Any:
            return repeat(inner, step, [params, state])

        return lambda *carried: repeat(outer, body, carried)

    start = np.float32(1), opt.init(jnp.float32(0))
    np.testing.assert_allclose(ipu.compile(nested(2, 3))(*start)[0], 0.49, rtol=1e-6)
    with pytest.raises(OptimizerError, match="loop of 2 iterations"):
        ipu.compile(nested(3, 2))(*start)
    # After a failed trace, as before it.
    np.testing.assert_allclose(ipu.compile(nested(2, 3))(*start)[0], 0.49, rtol=1e-6)


def test_a_number_of_iterations_known_at_run_time_is_not_checked() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(1.0), 2)

    def body(params: Any, state: Any) -> Any:
        updates, state = opt.update(jnp.float32(1), state, params)
        return optax.apply_updates(params, updates), state

    run = ipu.compile(lambda n, p, s: repeat(n, body, [p, s]))
    params, state = run(np.int32(5), np.float32(0), opt.init(jnp.float32(0)))
    assert (params, state.mini_step) == (-4, 1)


def test_without_the_compiler_any_loop_will_do() -> None:
    opt = GradientAccumulationOptimizerV2(optax.sgd(0.01), 4)
    configure(1)
    found, _ = jax.jit(program(opt, 6, DATA))(WEIGHTS, opt.init(WEIGHTS))
    assert found["w"].shape == (40,)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_they_are_where_the_original_had_them(cls: type) -> None:
    module = cls.__module__.rpartition(".")[2]
    assert getattr(getattr(ipu.optimizers, module), cls.__name__) is cls
    if cls is not IpuOptimizer:
        assert getattr(getattr(ipu, module), cls.__name__) is cls
        assert module in dir(ipu)


def test_everything_public_is_documented() -> None:
    assert len(CLASSES) == 8
    for name in dir(optimizers):
        value = getattr(optimizers, name)
        assert value.__doc__, name
        if value in CLASSES:
            for member, function in vars(value).items():
                assert member.startswith("_") or inspect.getdoc(function), f"{name}.{member}"


def test_signatures_are_the_originals() -> None:
    def names(cls: type) -> list[str]:
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [str(p).partition(":")[0] for p in parameters if p.kind != p.KEYWORD_ONLY][1:]

    defaults = {
        cls.__name__: {
            p.name: p.default
            for p in inspect.signature(cls.__init__).parameters.values()
            if p.default is not p.empty and p.kind != p.KEYWORD_ONLY
        }
        for cls in CLASSES
    }
    first = ["opt", "num_mini_batches"]
    for prefix in ("", "CrossReplica"):
        v1, v2 = (f"{prefix}GradientAccumulationOptimizer{version}" for version in ("", "V2"))
        assert names(getattr(optimizers, v1)) == [*first, "verify_usage", "name"]
        assert defaults[v1] == {"verify_usage": True, "name": v1}
        assert names(getattr(optimizers, v2)) == [*first, *defaults[v2]]
        assert list(defaults[v2].items()) == [
            ("offload_weight_update_variables", None),
            ("replicated_optimizer_state_sharding", False),
            ("dtype", None),
            ("name", v2),
        ]
    assert names(IpuOptimizer) == names(CrossReplicaOptimizer) == ["opt", "name"]
    assert names(ShardedOptimizer) == ["optimizer"]
    assert names(MapGradientOptimizer) == ["wrapped_optimizer", "gradient_mapping_function", "name"]
