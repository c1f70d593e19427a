"""Conformance facts about what pipelines refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import ipujax as ipu
from ipujax.errors import PipelineError, PipelineNotImplementedError, PipelineTypeError
from ipujax.ipu_outfeed_queue import IPUOutfeedMode
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    pipeline,
)
from ipujax.schedules import ScheduleError
from tests.ipujax.feeding import configure, outfeed
from tests.ipujax.pipelining import f32


def identity(*xs: Any) -> Any:
    return xs


def optimizer(loss: Any, *rest: Any) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(optax.sgd(0.1), loss)


def inference(**arguments: Any) -> Callable[[], Any]:
    """A function with a pipeline of two identities, or of `arguments`."""

    def model() -> Any:
        known = {"outfeed_queue": outfeed(), "inputs": [1.0], "gradient_accumulation_count": 4}
        return pipeline(**({"computational_stages": [identity, identity]} | known | arguments))

    return model


def training(**arguments: Any) -> Callable[[], Any]:
    """The same in training."""
    stages = [lambda w, x: w * x, lambda w, x: x]
    known = {"computational_stages": stages, "variables": f32(2), "optimizer_function": optimizer}
    return inference(**(known | arguments))


def refused(model: Callable[[], Any], error: type[Exception], match: str) -> None:
    """Fails unless compiling raises; a correct pipeline then goes on working."""
    configure(2)
    with pytest.raises(error, match=match) as caught:
        ipu.compile(model).lower()
    assert isinstance(caught.value, ipu.errors.IPUError)
    sink = outfeed()
    ipu.compile(inference(outfeed_queue=sink))()
    assert sink.dequeue()[0].tolist() == [1] * 4


@pytest.mark.fact("pipeline_errors.no_outfeed_inference", "pipeline_errors.no_outfeed_training")
@pytest.mark.parametrize("make", [inference, training])
def test_outputs_need_an_outfeed(make: Any) -> None:
    refused(make(outfeed_queue=None), ValueError, "has tensor outputs, but there is no outfeed")


@pytest.mark.fact("pipeline_errors.device_mapping_type")
def test_the_mapping_is_a_list() -> None:
    refused(inference(device_mapping=1), TypeError, "device_mapping must be a list or tuple")


@pytest.mark.fact("pipeline_errors.stages_type")
def test_the_stages_are_a_list() -> None:
    refused(inference(computational_stages=identity), TypeError, "must be a list or tuple")


@pytest.mark.fact("pipeline_errors.no_gac")
@pytest.mark.parametrize("count", [None, 0])
def test_the_count_is_needed(count: Any) -> None:
    refused(inference(gradient_accumulation_count=count), ValueError, "must be specified")


@pytest.mark.fact("pipeline_errors.recompute_type")
def test_the_mode_of_recomputation_is_one() -> None:
    refused(inference(recomputation_mode="Auto"), TypeError, "RecomputationMode")


@pytest.mark.fact("pipeline_errors.continuous")
def test_no_continuous_weight_updates() -> None:
    model = training(continuous_weight_updates=True)
    refused(model, NotImplementedError, "continuous_weight_updates is not implemented")


@pytest.mark.fact("pipeline_errors.capture")
@pytest.mark.parametrize("make", [inference, training])
def test_stages_capture_no_tensors(make: Any) -> None:
    configure(2)

    def model(y: Any) -> Any:
        stages = [lambda *xs: xs[-1] * y, lambda *xs: xs[-1]]
        return make(computational_stages=stages)()

    with pytest.raises(ValueError, match=r"(?s)trying to capture the tensor.*inputs.*infeed") as e:
        ipu.compile(model).lower(f32(1))
    assert isinstance(e.value, PipelineError)


@pytest.mark.fact("pipeline_errors.stage_options_type")
@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("given", [PipelineStageOptions(), [{}, {}], [PipelineStageOptions(), 1]])
def test_options_of_stages(phase: str, given: Any) -> None:
    name = f"{phase}_propagation_stages_poplar_options"
    refused(training(**{name: given}), TypeError, "must be a list or tuple|PipelineStageOptions")


@pytest.mark.fact("pipeline_errors.stage_options_type")
def test_options_of_the_weight_update() -> None:
    refused(training(weight_update_poplar_options={}), TypeError, "PipelineStageOptions")


@pytest.mark.fact("pipeline_errors.stage_options_dict")
@pytest.mark.parametrize("name", ["convolution_options", "matmul_options"])
def test_options_are_dicts(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a dict") as caught:
        PipelineStageOptions(**{name: [1]})  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, PipelineTypeError)


@pytest.mark.fact("pipeline_errors.outfeed_loss_needs_opt")
def test_only_training_has_a_loss() -> None:
    refused(inference(outfeed_loss=True), ValueError, "outfeed_loss needs an optimizer_function")


@pytest.mark.fact("pipeline_errors.outfeed_loss_needs_opt")
def test_the_loss_needs_an_outfeed() -> None:
    model = training(outfeed_loss=True, outfeed_queue=None)
    refused(model, ValueError, "outfeed_loss needs an outfeed_queue")


@pytest.mark.fact("pipeline_errors.outfeed_mask_needs_opt")
@pytest.mark.parametrize("mask", [[False], [True]])
def test_only_training_has_a_mask(mask: list[bool]) -> None:
    refused(inference(outfeed_mask=mask), ValueError, "outfeed_mask needs an optimizer_function")


@pytest.mark.fact("pipeline_errors.mask_and_loss")
def test_either_a_mask_or_the_loss() -> None:
    model = training(outfeed_mask=[False], outfeed_loss=True)
    refused(model, ValueError, "only one of outfeed_loss and outfeed_mask may be set")


@pytest.mark.fact("pipeline_errors.mask_len")
def test_the_mask_has_an_entry_for_each_output() -> None:
    stages = [lambda w, x: w * x, lambda w, x: (x, x)]
    model = training(computational_stages=stages, outfeed_mask=[True, False, True])
    refused(model, ValueError, r"3 entries.* 2 outputs; the sizes need to match")


@pytest.mark.fact("pipeline_errors.accumulate_needs_all")
@pytest.mark.parametrize("make", [inference, training])
def test_sums_need_an_outfeed_that_keeps_all(make: Any) -> None:
    model = make(accumulate_outfeed=True, outfeed_queue=outfeed(IPUOutfeedMode.LAST))
    refused(model, ValueError, r"mode IPUOutfeedMode\.ALL")


@pytest.mark.fact("pipeline_errors.batch_serial_schedule")
def test_batches_are_serialized_by_one_schedule() -> None:
    model = inference(
        computational_stages=[identity] * 3,
        pipeline_schedule=PipelineSchedule.Grouped,
        batch_serialization_iterations=4,
        device_mapping=[0, 0, 0],
        gradient_accumulation_count=12,
    )
    refused(model, NotImplementedError, "only supported with the Sequential")


@pytest.mark.fact("pipeline_errors.batch_serial_schedule")
def test_batches_are_serialized_on_one_ipu() -> None:
    model = inference(batch_serialization_iterations=4, device_mapping=[0, 1])
    refused(model, PipelineNotImplementedError, "single IPU")


@pytest.mark.fact("pipeline_errors.shared_variable_devices")
def test_a_variable_has_one_ipu() -> None:
    stages = [lambda w, x: w["a"] * x, lambda w, x: w["a"] + x]
    model = training(computational_stages=stages, variables={"a": f32(1)})
    refused(model, PipelineError, r"(?s)\['a'\].*must be on the same IPU.*device_mapping=\[0, 0\]")


@pytest.mark.fact("pipeline_errors.rts_no_offload")
def test_sharded_state_is_offloaded() -> None:
    sharded = {"replicated_optimizer_state_sharding": True}
    model = training(**sharded, offload_weight_update_variables=False)
    refused(model, ValueError, "needs the optimizer state to be offloaded")
    sharded["replicated_optimizer_state_sharding"] = "on_tiles"
    model = training(**sharded, offload_weight_update_variables=True)
    refused(model, PipelineError, "keeps the optimizer's state on the tiles")
    sharded["replicated_optimizer_state_sharding"] = "on tiles"
    refused(training(**sharded), TypeError, 'True, False or "on_tiles"')


@pytest.mark.fact("pipeline_errors.reduction_batch_serial")
@pytest.mark.parametrize("method", ["MEAN", "RUNNING_MEAN"])
def test_serialized_batches_are_summed(method: str) -> None:
    model = training(batch_serialization_iterations=2, reduction_method=method)
    refused(model, ValueError, "only SUM is defined")


@pytest.mark.fact("pipeline_schedule.not_multiple_inf")
@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Interleaved])
def test_counts_that_do_not_divide(schedule: PipelineSchedule) -> None:
    configure(4)
    model = inference(
        computational_stages=[jnp.sin] * 3,
        gradient_accumulation_count=10,
        pipeline_schedule=schedule,
    )
    with pytest.raises(ScheduleError, match="multiple of 3") as caught:
        ipu.compile(model).lower()
    assert isinstance(caught.value, ipu.errors.IPUError)


@pytest.mark.fact("pipeline_schedule.dynamic_gac")
def test_counts_are_known_when_compiling() -> None:
    configure(2)

    def model(count: Any) -> Any:
        return inference(gradient_accumulation_count=count)()

    with pytest.raises(PipelineTypeError, match=r"(?s)run time.*static_argnums"):
        ipu.compile(model).lower(12)
