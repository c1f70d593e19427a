"""What Keras models are told about pipelines and accumulation; after the original's tests of it."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras

from ipujax.errors import (
    FeedError,
    KerasError,
    KerasTypeError,
    OperatorError,
    OptimizerError,
    OptimizerTypeError,
    PipelineError,
    PipelineTypeError,
)
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.ipu_strategy import IPUStrategy
from ipujax.keras.model_options import (
    GradientAccumulationOptions,
    gradient_accumulation_options,
    pipelining_options,
    set_gradient_accumulation_options,
    set_pipelining_options,
)
from ipujax.keras.queue_options import (
    prefetch_depth,
    set_infeed_queue_options,
    set_outfeed_queue_options,
)
from ipujax.pipelining_ops import PipelineSchedule, RecomputationMode


@pytest.fixture
def model() -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])


def test_options_are_kept_until_they_are_given_again(model: Any) -> None:
    assert pipelining_options(model).gradient_accumulation_steps_per_replica is None
    set_pipelining_options(
        model,
        gradient_accumulation_steps_per_replica=10,
        device_mapping=[1, 0],
        accumulate_outfeed=True,
        pipeline_schedule=PipelineSchedule.Interleaved,
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
        offload_activations=True,
    )
    options = pipelining_options(model)
    assert options.gradient_accumulation_steps_per_replica == 10
    assert options.device_mapping == (1, 0)
    assert options.accumulate_outfeed is True
    assert options.reduction_method is Reduction.MEAN
    assert set(options.arguments) == {
        "pipeline_schedule",
        "recomputation_mode",
        "offload_activations",
    }
    set_pipelining_options(model, accumulate_outfeed=False, offload_weights=False)
    options = pipelining_options(model)
    assert options.gradient_accumulation_steps_per_replica == 10
    assert options.device_mapping == (1, 0)
    assert options.accumulate_outfeed is False
    assert options.arguments == {"offload_weights": False}


def test_accumulation(model: Any) -> None:
    assert gradient_accumulation_options(model).gradient_accumulation_steps_per_replica == 1
    set_gradient_accumulation_options(model, 4, "running_mean")
    options = gradient_accumulation_options(model)
    assert options.gradient_accumulation_steps_per_replica == 4
    assert options.reduction_method is Reduction.RUNNING_MEAN
    set_gradient_accumulation_options(model)
    assert gradient_accumulation_options(model).gradient_accumulation_steps_per_replica == 4


@pytest.mark.parametrize("set_options", [set_pipelining_options, set_gradient_accumulation_options])
def test_steps_and_reduction_methods(set_options: Any, model: Any) -> None:
    steps = "gradient_accumulation_steps_per_replica"
    for wrong in (-1, 0):
        with pytest.raises(PipelineError, match=f"{steps} is {wrong}, but must be at least 1"):
            set_options(model, gradient_accumulation_steps_per_replica=wrong)
    for wrong in (1.0, "2", True):
        with pytest.raises(PipelineTypeError, match=f"{steps} is .* must be an integer"):
            set_options(model, gradient_accumulation_steps_per_replica=wrong)
    with pytest.raises(OptimizerError, match="no reduction method 'median'"):
        set_options(model, gradient_accumulation_reduction_method="median")
    with pytest.raises(OptimizerTypeError, match="a reduction method is"):
        set_options(model, gradient_accumulation_reduction_method=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gradient_accumulation_count", "give gradient_accumulation_steps_per_replica instead"),
        ("reduction_method", "give gradient_accumulation_reduction_method instead"),
        ("repeat_count", "that Keras sets by itself"),
        ("infeed_queue", "that Keras sets by itself"),
        ("variables", "that Keras sets by itself"),
        ("state", "that Keras sets by itself"),
        ("batch_serialization_iterations", "is not compatible with Keras"),
        ("outfeed_loss", "is not compatible with Keras"),
    ],
)
def test_arguments_that_keras_sets(model: Any, name: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        set_pipelining_options(model, **{name: 10})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_mapping": [0.0, 1.0]}, "an entry of device_mapping is 0.0"),
        ({"device_mapping": 1}, "device_mapping is 1, .* must be a list"),
        ({"pipeline_schedules": 1}, "have no argument pipeline_schedules"),
        ({"pipeline_schedule": 3}, "pipeline_schedule"),
        ({"recomputation_mode": 3}, "recomputation_mode"),
        ({"offload_activations": "yes"}, "offload_activations"),
        ({"accumulate_outfeed": 1}, "accumulate_outfeed"),
    ],
)
def test_options_of_wrong_types(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineTypeError, match=message):
        set_pipelining_options(model, **options)
    assert pipelining_options(model).arguments == {}


def test_new_options_make_programs_anew(model: Any) -> None:
    for set_options in (set_pipelining_options, set_gradient_accumulation_options):
        model.train_function = model.test_function = model.predict_function = len
        set_options(model, gradient_accumulation_steps_per_replica=2)
        assert model.train_function is model.test_function is model.predict_function is None


def test_arguments_of_the_accumulating_optimizer_replace_those_before(model: Any) -> None:
    set_gradient_accumulation_options(
        model,
        2,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=None,
        dtype="float32",
        name="update",
    )
    options = gradient_accumulation_options(model)
    assert options.storage.remote
    assert options.storage.sharded
    assert (options.dtype_of_accumulators, options.scope_name) == ("float32", "update")
    set_gradient_accumulation_options(model, offload_weight_update_variables=False)
    options = gradient_accumulation_options(model)
    assert not options.storage.remote
    assert (options.gradient_accumulation_steps_per_replica, options.dtype_of_accumulators) == (
        2,
        None,
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_mini_batches": 2}, PipelineError, "give gradient_accumulation_steps_per_replica"),
        ({"opt": "sgd"}, PipelineError, "that Keras sets by itself"),
        ({"verify_usage": True}, PipelineTypeError, "have no argument verify_usage"),
        ({"offload_weight_update_variables": 1}, OptimizerTypeError, "offload_weight_update"),
        ({"dtype": "int32"}, OptimizerTypeError, "dtype"),
        ({"name": 3}, OptimizerTypeError, "name"),
        (
            {"offload_weight_update_variables": False, "replicated_optimizer_state_sharding": True},
            OptimizerError,
            "needs the optimizer state to be offloaded",
        ),
    ],
)
def test_wrong_arguments_of_the_accumulating_optimizer(
    model: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        set_gradient_accumulation_options(model, 2, **arguments)
    assert gradient_accumulation_options(model) == GradientAccumulationOptions()


def test_queue_options(model: Any) -> None:
    assert prefetch_depth(model) is None
    set_infeed_queue_options(model, prefetch_depth=3, optimise_latency=True)
    assert prefetch_depth(model) == 3
    set_outfeed_queue_options(model, buffer_depth=2, optimise_latency=False)
    set_infeed_queue_options(model)
    assert prefetch_depth(model) is None


@pytest.mark.parametrize(
    ("set_options", "arguments", "error", "message"),
    [
        (set_infeed_queue_options, {"prefetch_depth": 0}, FeedError, "must be > 0 and < 256"),
        (set_infeed_queue_options, {"prefetch_depth": 2.0}, FeedError, "must be an integer"),
        (set_infeed_queue_options, {"dataset": []}, KerasError, "that Keras sets by itself"),
        (set_infeed_queue_options, {"buffer_depth": 2}, KerasTypeError, "have no argument"),
        (set_outfeed_queue_options, {"buffer_depth": 0}, KerasError, "must be at least 1"),
        (set_outfeed_queue_options, {"buffer_depth": True}, KerasTypeError, "an integer"),
        (set_outfeed_queue_options, {"optimise_latency": 1}, KerasTypeError, "a bool"),
        (set_outfeed_queue_options, {"outfeed_mode": None}, KerasError, "Keras sets by itself"),
        (set_outfeed_queue_options, {"prefetch_depth": 2}, KerasTypeError, "have no argument"),
    ],
)
def test_wrong_queue_options(
    model: Any, set_options: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        set_options(model, **arguments)


class Subclassed(keras.Model):
    """A layer in a model that is no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        """Applies the layer."""
        return self.layer(x)


def functional() -> Any:
    """A layer in a functional model."""
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


@pytest.mark.parametrize(
    "build", [functional, Subclassed, lambda: keras.Sequential([keras.layers.Dense(1)])]
)
def test_all_options_act_on_models_of_every_kind(build: Any) -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
    results = []
    for is_ours in (True, False):
        keras.utils.set_random_seed(0)
        scope = IPUStrategy().scope() if is_ours else contextlib.nullcontext()
        with scope:
            model = build()
            optimizer = keras.optimizers.Adam(
                0.1, gradient_accumulation_steps=None if is_ours else 2
            )
            model.compile(optimizer, "mse", steps_per_execution=4 if is_ours else 1)
            if is_ours:  # accepted, also where it acts on nothing
                model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
                model.set_gradient_accumulation_options(2, dtype="float32", name="update")
                model.set_infeed_queue_options(prefetch_depth=2)
                model.set_outfeed_queue_options(buffer_depth=2)
            model.fit(x, x[:, :1], 2, 2, verbose=0, shuffle=False)
            if is_ours:
                kinds = [step.kind for step in model.report().steps]
                assert "remote" not in kinds  # Adam's variables are under the least size
        results.append(model.get_weights())
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_offloaded_optimizer_state_gives_the_same(policy: str) -> None:
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("float32")
    results, remote = [], []
    for offload in (None, False):
        keras.utils.set_random_seed(0)
        with IPUStrategy().scope():
            layers = [keras.Input((64,)), keras.layers.Dense(64, dtype=policy)]
            model = keras.Sequential(layers)
            optimizer: Any = keras.optimizers.Adam(0.1)
            if policy != "float32":
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
            model.compile(optimizer, "mse", steps_per_execution=4)
            model.set_gradient_accumulation_options(2, offload_weight_update_variables=offload)
            model.fit(x, x, 4, 2, verbose=0, shuffle=False)
            remote.append(sum(step.kind == "remote" for step in model.report().steps))
        results.append(model.get_weights())
    assert remote[0] > 0 == remote[1]
    for offloaded, on_tiles in zip(*results, strict=True):
        np.testing.assert_array_equal(offloaded, on_tiles)


def test_arguments_of_strategies_of_the_original() -> None:
    strategy = IPUStrategy(
        cpu_device="/device:CPU:0", enable_dataset_iterators=False, enable_keras_extensions=True
    )
    assert strategy.num_replicas_in_sync >= 1
    with pytest.raises(OperatorError, match="cpu_device is '/device:CPU:1'"):
        IPUStrategy(cpu_device="/device:CPU:1")
    with pytest.raises(OperatorError, match="without enable_keras_extensions is not there"):
        IPUStrategy(enable_keras_extensions=False)
    with pytest.raises(TypeError, match="enable_dataset_iterators"):
        IPUStrategy(enable_dataset_iterators=1)  # pyright: ignore[reportArgumentType]
