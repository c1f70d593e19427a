"""What pipelines say about mistakes: what is wrong, where, and how to mend it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import IPUError, PipelineError, PipelineTypeError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    pipeline,
)
from ipujax.schedules import ScheduleError
from tests.ipujax.feeding import configure, infeed, outfeed
from tests.ipujax.pipelining import f32, sgd


def double(w: Any, x: Any) -> Any:
    return w["a"] * x


def passed_on(w: Any, x: Any) -> Any:
    return x


def lowered(*, ipus: int = 2, **arguments: Any) -> Any:
    """Lowers a training pipeline of two stages that is correct but for `arguments`."""
    configure(ipus)
    known: dict[str, Any] = {
        "computational_stages": [double, passed_on],
        "gradient_accumulation_count": 4,
        "infeed_queue": infeed([f32(1)] * 4),
        "outfeed_queue": outfeed(),
        "optimizer_function": sgd(0.1),
        "variables": {"a": f32(2)},
    }
    given = known | arguments
    variables, state = given.pop("variables"), given.pop("optimizer_state", None)

    def model(variables: Any, state: Any) -> Any:
        return pipeline(variables=variables, optimizer_state=state, **given)

    return ipu.compile(model).lower(variables, state)


def refused(*words: str, error: type[Exception] = PipelineError, **arguments: Any) -> str:
    """The message of a refusal, which has all the words; a correct pipeline then works."""
    with pytest.raises(error) as caught:
        lowered(**arguments)
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    for word in words:
        assert word in message, message
    assert isinstance(caught.value, IPUError) or "in stage" in message
    lowered()
    return message


# --- stages that do not fit -----------------------------------------------------------------------


def test_a_stage_with_other_arguments_than_it_is_given() -> None:
    def third(w: Any, x: Any, y: Any) -> Any:
        return x + y

    refused(
        "stage 1 (`third`)",
        "what stage 0 returns: (float32[])",
        "takes: third(w:",
        "test_pipeline_bad_input.py:",
        "fix:",
        computational_stages=[double, third],
    )


def test_a_stage_that_does_not_take_the_variables() -> None:
    message = refused("stage 1", "the variables, then", computational_stages=[double, lambda x: x])
    assert "float32[]" in message


def test_a_first_stage_without_its_infeed() -> None:
    refused("stage 0 (`double`)", "`inputs` and the infeed's element: ()", infeed_queue=None)


def test_a_dict_that_goes_by_another_keyword() -> None:
    refused("stage 0", "y=float32[]", infeed_queue=infeed([{"y": f32(1)}] * 4))


def test_an_error_inside_a_stage_names_it() -> None:
    def wrong(w: Any, x: Any) -> Any:
        return x @ jnp.ones((3, 3))

    refused(
        "in stage 1 (`wrong`)", "(float32[])", error=Exception, computational_stages=[double, wrong]
    )


def test_a_stage_with_the_shard_of_another_ipu() -> None:
    def elsewhere(w: Any, x: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            return w["a"] * x

    refused(
        "stage 0 (`elsewhere`) is on IPU 0",
        "ipu_shard(1)",
        "test_pipeline_bad_input.py",
        "-1 in device_mapping",
        computational_stages=[elsewhere, passed_on],
    )
    lowered(computational_stages=[elsewhere, passed_on], device_mapping=[-1, 1])


def test_a_shard_inside_control_flow_of_a_stage() -> None:
    def elsewhere(w: Any, x: Any) -> Any:
        def body(_: Any, x: Any) -> Any:
            with ipu.scopes.ipu_shard(1):
                return w["a"] * x

        return jax.lax.fori_loop(0, 2, body, x)

    refused("ipu_shard(1)", computational_stages=[elsewhere, passed_on])


# --- variables and losses -------------------------------------------------------------------------


def test_a_variable_on_two_ipus() -> None:
    stages = [double, passed_on, double, double]
    refused(
        "variable ['a']",
        "stage 0 (`double`) on IPU 0",
        "stage 2 (`double`) on IPU 2",
        "device_mapping=[0, 1, 0, 0]",
        ipus=4,
        computational_stages=stages,
        gradient_accumulation_count=8,
    )
    lowered(computational_stages=stages, gradient_accumulation_count=8, device_mapping=[0, 1, 0, 0])


def test_stacked_layers_of_which_each_stage_reads_some() -> None:
    refused(
        "variable ['layers'] is read by stage 0",
        "give each stage its slice as a variable of its own",
        "pipelining_ops.value_and_grad(loss, stages=n)",
        computational_stages=[lambda w, x: w["layers"][0] * x, lambda w, x: w["layers"][1] * x],
        variables={"layers": jnp.ones(2)},
    )


def test_losses_that_are_none() -> None:
    def with_last(last: Any) -> dict[str, Any]:
        return {"computational_stages": [double, last]}

    refused("one floating-point number", "float32[1]", **with_last(lambda w, x: x[None]))
    refused("one floating-point number", "int32[]", **with_last(lambda w, x: x.astype(int)))
    refused("does not depend on any of the `variables`", **with_last(lambda w, x: jnp.float32(1)))


def test_training_without_variables() -> None:
    refused(
        "a training pipeline needs `variables`",
        variables=None,
        computational_stages=[lambda x: x, lambda x: x],
    )


def test_optimizer_functions_that_return_something_else() -> None:
    def give(value: Any) -> Any:
        return lambda loss: value

    refused("OptimizerFunctionOutput", error=PipelineTypeError, optimizer_function=give(None))
    with pytest.raises(PipelineTypeError, match="optax gradient transformation"):
        OptimizerFunctionOutput("sgd", 1.0)


def test_an_optimizer_function_of_other_arguments_than_the_outputs() -> None:
    def of_two(loss: Any, accuracy: Any) -> Any:
        raise AssertionError("is never called")

    line = of_two.__code__.co_firstlineno
    message = refused(
        "optimizer_function does not take what the last stage returns",
        "missing a required argument: 'accuracy'",
        "given: (float32[])",
        "takes: (loss",
        "OptimizerFunctionOutput(optax.sgd(0.1), loss)",
        optimizer_function=of_two,
    )
    assert f"{__file__}:{line}" in message


def test_an_optimizer_alone_for_a_last_stage_that_returns_more_than_the_loss() -> None:
    refused(
        "given: (float32[], float32[])",
        "too many positional arguments",
        computational_stages=[double, lambda w, x: (x, x)],
        optimizer_function=optax.sgd(0.1),
    )


def test_a_name_that_no_schedule_has() -> None:
    refused("did you mean 'grouped'?", "'one_f_one_b'", pipeline_schedule="gruped")
    refused("no schedule has that name", pipeline_schedule="")


def test_states_of_other_optimizers() -> None:
    adam = optax.adam(0.1).init({"a": jnp.float32(1)})
    refused("opt.init(variables)", optimizer_function=sgd(0.1, 0.9), optimizer_state=adam)
    momentum = optax.sgd(0.1, 0.9).init({"a": jnp.ones(3)})
    refused("opt.init(variables)", optimizer_function=sgd(0.1, 0.9), optimizer_state=momentum)


# --- counts and schedules -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "multiple"), [(PipelineSchedule.Grouped, 4), (PipelineSchedule.Interleaved, 2)]
)
def test_counts_that_do_not_divide(schedule: PipelineSchedule, multiple: int) -> None:
    good = 4 + multiple
    refused(
        f"multiple of {multiple}",
        f"{good}",
        "test_pipeline_bad_input.py",
        error=ScheduleError,
        gradient_accumulation_count=5,
        pipeline_schedule=schedule,
    )


def test_a_schedule_that_waits_for_ever() -> None:
    def stuck(stages: int, micro_batches: int) -> list[list[str]]:
        return [[f"{s}{p}{m}" for m in range(micro_batches) for p in "BF"] for s in range(stages)]

    message = refused("stuck", error=ScheduleError, pipeline_schedule=stuck)
    assert "0B0" in message
    assert "fix:" in message


@pytest.mark.parametrize("made", [None, 3, [["0F0"]], [["0F0", "nonsense"], []]])
def test_schedules_that_are_none(made: Any) -> None:
    refused(error=ScheduleError, pipeline_schedule=lambda stages, micro_batches: made)


# --- arguments of wrong types ---------------------------------------------------------------------


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("computational_stages", [double, 3]),
        ("computational_stages", [double, []]),
        ("gradient_accumulation_count", 4.0),
        ("gradient_accumulation_count", True),
        ("gradient_accumulation_count", "4"),
        ("gradient_accumulation_dtype", "nonsense"),
        ("gradient_accumulation_dtype", jnp.int32),
        ("gradient_accumulation_dtype", lambda variable: None),
        ("repeat_count", 1.5),
        ("batch_serialization_iterations", None),
        ("inputs", 3.0),
        ("inputs", {"x": 1}),
        ("infeed_queue", [1, 2]),
        ("outfeed_queue", IPUInfeedQueue),
        ("optimizer_function", 0.1),
        ("device_mapping", [0, "1"]),
        ("device_mapping", [0, True]),
        ("device_mapping", [0, -2]),
        ("pipeline_schedule", 3),
        ("recomputation_mode", 0),
        ("forward_propagation_stages_poplar_options", PipelineStageOptions()),
        ("backward_propagation_stages_poplar_options", [None, {}]),
        ("weight_update_poplar_options", {}),
        ("offload_activations", "yes"),
        ("offload_weights", 1),
        ("continuous_weight_updates", "no"),
        ("outfeed_loss", 1),
        ("outfeed_mask", [0]),
        ("outfeed_mask", True),
        ("name", 3),
    ],
)
def test_arguments_of_wrong_types(name: str, value: Any) -> None:
    words = "PipelineStageOptions" if "poplar_options" in name else name
    refused(words, error=PipelineTypeError, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("computational_stages", [double], "at least 2"),
        ("gradient_accumulation_count", -4, "at least 1"),
        ("repeat_count", 0, "at least 1"),
        ("batch_serialization_iterations", 0, "at least 1"),
        ("device_mapping", [0], "1 entries for 2"),
        ("device_mapping", [0, [1]], "does not fit computational_stages[1]"),
        ("forward_propagation_stages_poplar_options", [None], "1 entries for 2"),
        ("outfeed_mask", [True, False], "the sizes need to match"),
    ],
)
def test_arguments_that_contradict_one_another(name: str, value: Any, words: str) -> None:
    refused(words, **{name: value})


def test_sums_of_a_dtype_that_is_none() -> None:
    refused(
        "accumulate_outfeed_dtype",
        error=PipelineTypeError,
        accumulate_outfeed=True,
        accumulate_outfeed_dtype=object,
    )


def test_concurrent_functions_need_an_ipu_each() -> None:
    stages = [double, [passed_on, passed_on]]
    refused(
        "concurrent functions need an IPU each",
        computational_stages=stages,
        device_mapping=[0, [1, 1]],
    )
    refused("does not fit", computational_stages=stages, device_mapping=[0, 1])


def test_a_mapping_to_more_ipus_than_there_are() -> None:
    refused("auto_select_ipus", error=IPUError, device_mapping=[0, 5])


def test_one_outfeed_for_two_purposes() -> None:
    sink = outfeed()

    def sends(w: Any, x: Any) -> Any:
        sink.enqueue(x)
        return w["a"] * x

    refused(error=IPUError, computational_stages=[sends, passed_on], outfeed_queue=sink)


def test_mistakes_do_not_stick() -> None:
    refused("at least 1", repeat_count=-1)
    configure(2)
    sink, source = outfeed(), infeed([f32(k) for k in range(4)])

    def model(w: Any) -> Any:
        return pipeline(
            [double, passed_on],
            4,
            infeed_queue=source,
            outfeed_queue=sink,
            optimizer_function=sgd(0.1),
            variables=w,
        )

    new, _ = ipu.compile(model)({"a": f32(2)})
    assert float(new["a"]) == pytest.approx(1.4)
    np.testing.assert_array_equal(sink.dequeue()[0], [0, 2, 4, 6])
