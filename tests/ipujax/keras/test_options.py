"""What Keras models are told about pipelines and accumulation; after the original's tests of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("keras")

import keras

from ipujax.errors import OptimizerError, OptimizerTypeError, PipelineError, PipelineTypeError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.keras.options import (
    gradient_accumulation_options,
    pipelining_options,
    set_gradient_accumulation_options,
    set_pipelining_options,
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
        ({"pipeline_schedule": "Grouped"}, "pipeline_schedule"),
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
