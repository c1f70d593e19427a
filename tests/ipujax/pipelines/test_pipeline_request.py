"""Pipelines asked for by a `PipelineRequest`, as front ends do."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.pipelines import PipelineRequest, schedule_override, trace_requested_pipeline
from ipujax.pipelining_ops import PipelineSchedule, PipelineStageOptions
from tests.ipujax.feeding import configure, outfeed
from tests.ipujax.pipelining import sgd

WEIGHTS = {"w": jnp.asarray(1.5), "b": jnp.asarray(-0.5)}
ELEMENTS = [np.float32(i + 1) for i in range(12)]
COUNT = 4


def first(variables: Any, scale: Any, x: Any) -> Any:
    return scale * variables["w"] * x


def second(variables: Any, h: Any) -> Any:
    return (h + variables["b"]) ** 2


def asked(**changes: Any) -> PipelineRequest:
    arguments: dict[str, Any] = {
        "computational_stages": [first, second],
        "gradient_accumulation_count": COUNT,
        "infeed_queue": IPUInfeedQueue(ELEMENTS),
        "outfeed_queue": outfeed(),
        "optimizer_function": sgd(0.001),
    }
    return PipelineRequest(**{**arguments, **changes})


def stepped(scale: float, updates: int) -> dict[str, float]:
    """The variables after plain gradient descent."""
    w, b = float(WEIGHTS["w"]), float(WEIGHTS["b"])
    for update in range(updates):
        xs = scale * np.asarray(ELEMENTS[update * COUNT : (update + 1) * COUNT])
        errors = 2 * (w * xs + b)
        w, b = w - 0.001 * float(errors @ xs), b - 0.001 * float(errors.sum())
    return {"w": w, "b": b}


def test_a_request_runs_inside_compiled_code() -> None:
    configure(2)
    request = asked(repeat_count=np.int64(3))

    def train(variables: Any, scale: Any) -> Any:
        return trace_requested_pipeline(request, variables, None, [scale])

    variables, _ = ipu.compile(train)(WEIGHTS, 0.5)
    for name, value in stepped(0.5, 3).items():
        np.testing.assert_allclose(variables[name], value, rtol=1e-5)
    assert request.outfeed_queue is not None
    assert len(request.outfeed_queue.dequeue()[0]) == 3 * COUNT


def test_a_changed_request_is_checked_again() -> None:
    request = asked()
    with pytest.raises(ipu.errors.PipelineError, match="accumulate_outfeed needs an outfeed"):
        dc.replace(request, accumulate_outfeed=True, outfeed_queue=None)
    with pytest.raises(ipu.errors.PipelineNotImplementedError, match="all stages on a single IPU"):
        dc.replace(request, batch_serialization_iterations=2, device_mapping=[0, 1])
    with pytest.raises(dc.FrozenInstanceError):
        request.repeat_count = 2  # pyright: ignore


def test_what_follows_from_a_request() -> None:
    request = asked(batch_serialization_iterations=2, repeat_count=np.int64(5))
    assert request.micro_batches == 2 * COUNT
    assert request.ipus == ((0,), (0,))
    assert type(request.repeat_count) is int
    assert asked(device_mapping=[1, -1]).ipus == ((1,), ())
    with pytest.raises(ipu.errors.PipelineError, match="1 entries for 2 computational stages"):
        asked(backward_propagation_stages_poplar_options=[PipelineStageOptions()])


@pytest.mark.parametrize("mapping", [[0], {0: 0, 1: 1}, [0, [1]]])
def test_a_wrong_device_mapping_is_refused_with_its_line_and_a_remedy(mapping: Any) -> None:
    with pytest.raises((ipu.errors.PipelineError, ipu.errors.PipelineTypeError)) as caught:
        asked(device_mapping=mapping)
    assert f"{__file__}:" in caught.value.where
    assert caught.value.fix.startswith("give ")


def test_a_request_knows_the_line_that_made_it() -> None:
    request = asked()
    assert f"{__file__}:" in request.origin
    assert dc.replace(request, name="other").origin == request.origin


def test_a_schedule_tried_in_the_place_of_the_users_holds_for_requests_made_before() -> None:
    configure(2)
    request = asked(pipeline_schedule=PipelineSchedule.Grouped)

    def train(variables: Any) -> Any:
        return trace_requested_pipeline(request, variables, None, [1.0])

    lowered = ipu.compile(train).lower(WEIGHTS)
    with schedule_override(PipelineSchedule.Sequential):
        overridden = ipu.compile(train).lower(WEIGHTS)
    assert "grouped" in lowered.as_text()
    assert "sequential" in overridden.as_text()


@pytest.mark.parametrize("group", ["convolution_options", "matmul_options"])
@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("availableMemoryProportion", 2, "a number from 0 to 1"),
        ("availableMemoryProportion", "nan", "a number from 0 to 1"),
        ("partialsType", "double", "one of 'half', 'float', "),
    ],
)
def test_stage_options_are_checked_where_they_are_given(
    group: str, name: str, value: object, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{group}\['{name}'\] .* {wanted}"):
        PipelineStageOptions(**{group: {name: value}})


def test_stage_options_do_not_follow_a_dict_that_changes_later() -> None:
    options = {"availableMemoryProportion": "0.2"}
    given = PipelineStageOptions(matmul_options=options)
    options["availableMemoryProportion"] = "0.9"
    assert given.as_task_options == (("matmul_options", (("availableMemoryProportion", "0.2"),)),)


def test_an_optimizer_state_that_is_no_pytree_of_arrays_is_refused() -> None:
    with pytest.raises(ipu.errors.PipelineTypeError, match="check_pipeline was given 'x'"):
        ipu.pipelining_ops.check_pipeline(
            [first, second],
            COUNT,
            infeed_queue=IPUInfeedQueue(ELEMENTS),
            optimizer_function=sgd(0.001),
            inputs=[1.0],
            variables=WEIGHTS,
            optimizer_state="x",
        )
