"""Pipelines against the unpipelined step: what agrees, and what is said of what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelines.micro_batch import MicroBatch
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineCheck, check_pipeline
from tests.ipujax.feeding import configure

Schedule = ipu.pipelining_ops.PipelineSchedule
COUNT = 4


def arrays(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.normal(size=shape).astype(np.float32) / 2


VARIABLES = {"first": {"w": arrays(3, 5)}, "second": {"w": arrays(5, 5), "b": arrays(5)}}
ELEMENTS = [(x, x.sum(axis=1, keepdims=True)) for x in arrays(16, 2, 3)]


def first(variables: Any, x: Any, y: Any) -> Any:
    return jnp.tanh(x @ variables["first"]["w"]), y


def second(variables: Any, h: Any, y: Any) -> Any:
    prediction = h @ variables["second"]["w"] + variables["second"]["b"]
    return jnp.mean((prediction - y) ** 2), prediction


def whole(variables: Any, x: Any, y: Any) -> Any:
    return second(variables, *first(variables, x, y))[0]


def adam(loss: Any, prediction: Any) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(optax.adam(0.1), loss)


def pipeline_arguments(**changed: Any) -> dict[str, Any]:
    return {
        "computational_stages": [first, second],
        "gradient_accumulation_count": COUNT,
        "repeat_count": 3,
        "infeed_queue": IPUInfeedQueue(ELEMENTS),
        "outfeed_queue": IPUOutfeedQueue(),
        "optimizer_function": adam,
        "variables": VARIABLES,
        **changed,
    }


def checked(**changed: Any) -> PipelineCheck:
    return check_pipeline(**pipeline_arguments(**changed))


@pytest.fixture(autouse=True)
def two_ipus() -> None:
    configure(2)


NAMES = [
    "loss",
    "output 0",
    "output 1",
    "gradient ['first']['w']",
    "gradient ['second']['b']",
    "gradient ['second']['w']",
    "updated ['first']['w']",
    "updated ['second']['b']",
    "updated ['second']['w']",
]


# --- pipelines that are right ---------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["replay", "fused"])
def test_a_right_pipeline_agrees(engine: str) -> None:
    found = checked(engine=engine)
    assert [row.name for row in found.rows][: len(NAMES)] == NAMES
    assert "optimizer state [0].mu['second']['b']" in [row.name for row in found.rows]
    assert found.ok
    assert found.findings == []
    assert found.worst.relative < 1e-5
    assert all(row.scale == pytest.approx(1, rel=1e-5) for row in found.rows)
    found.raise_if_different()


@pytest.mark.parametrize("schedules", [[], ()])
def test_no_schedule_at_all_is_refused(schedules: Any) -> None:
    with pytest.raises(ipu.errors.PipelineError, match="nothing is checked"):
        checked(schedules=schedules)


@pytest.mark.exhaustive
def test_several_schedules_are_checked_at_once() -> None:
    schedules = [*Schedule, ipu.schedules.gpipe, ipu.schedules.zero_bubble]
    found = checked(schedules=schedules)
    assert found.ok
    names = list(dict.fromkeys(row.schedule for row in found.rows))
    assert names == ["Grouped", "Interleaved", "Sequential", "gpipe", "zero_bubble"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["SUM", "MEAN", "RUNNING_MEAN"])
def test_reductions_agree(method: str) -> None:
    found = checked(reduction_method=method, reference=whole)
    assert found.ok
    assert found.reduction.name == method


def test_recomputation_agrees() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    assert checked(schedules=list(Schedule)).ok


@pytest.mark.sampled(1)
@pytest.mark.parametrize("averages", [False, True])
def test_replicas_agree(averages: bool) -> None:
    configure(4)

    def optimizer(loss: Any, prediction: Any) -> OptimizerFunctionOutput:
        sgd = optax.sgd(0.1, momentum=0.5)
        opt = ipu.optimizers.CrossReplicaOptimizer(sgd) if averages else sgd
        return OptimizerFunctionOutput(opt, loss)

    found = checked(optimizer_function=optimizer)
    assert found.replicas == 2
    assert "gradient over replicas ['first']['w']" in [row.name for row in found.rows]
    assert found.ok
    assert checked(optimizer_function=optimizer, reduction_method="MEAN").ok


def test_inference_compares_outputs() -> None:
    right = {"optimizer_function": None}
    assert [row.name for row in checked(**right).rows] == ["output 0", "output 1"]
    assert checked(**right).ok

    def reference(variables: Any, x: Any, y: Any) -> Any:
        loss, prediction = second(variables, *first(variables, x, y))
        return loss, prediction + 1

    found = checked(**right, reference=reference)
    assert [row.ok for row in found.rows] == [True, False]
    assert found.findings == ["output 1 differs, not just by a factor"]


def test_inference_without_variables() -> None:
    found = check_pipeline(
        [lambda x, y: (x, y), lambda x, y: x * y],
        2,
        inputs=[np.float32(3)],
        infeed_queue=IPUInfeedQueue([np.float32(1), np.float32(2)]),
        outfeed_queue=IPUOutfeedQueue(),
    )
    assert found.ok


def test_a_state_dict_elements_inputs_and_mapped_gradients() -> None:
    def start(variables: Any, rate: Any, x: Any, y: Any) -> Any:
        return rate, *first(variables, x, y)

    def end(variables: Any, rate: Any, h: Any, y: Any) -> Any:
        return rate, second(variables, h, y)[0]

    def optimizer(rate: Any, loss: Any) -> OptimizerFunctionOutput:
        opt = ipu.optimizers.MapGradientOptimizer(optax.adam(rate), lambda g, v: 3 * g + v)
        return OptimizerFunctionOutput(opt, loss)

    state: Any = optax.adam(0.1).init(VARIABLES)
    found = checked(
        computational_stages=[start, end],
        inputs=[0.01],
        infeed_queue=IPUInfeedQueue([{"y": y, "x": x} for x, y in ELEMENTS]),
        optimizer_function=optimizer,
        optimizer_state=(state[0]._replace(count=np.int32(7)), *state[1:]),
    )
    assert found.ok


# --- elements -------------------------------------------------------------------------------------


def test_the_infeeds_elements_stay_in_it() -> None:
    infeed = IPUInfeedQueue(iter(ELEMENTS))
    arguments = pipeline_arguments(infeed_queue=infeed)
    assert check_pipeline(**arguments, schedules=list(Schedule)).ok
    outfeed = arguments["outfeed_queue"]
    ipu.compile(lambda: ipu.pipelining_ops.pipeline(**arguments))()
    losses, _ = outfeed.dequeue()
    wanted = [whole(VARIABLES, x, y) for x, y in ELEMENTS[:COUNT]]
    np.testing.assert_allclose(losses[:COUNT], wanted, rtol=1e-5)


def test_a_batch_is_a_list_or_stacked() -> None:
    doubled = [(2 * x, y) for x, y in ELEMENTS]
    stacked = tuple(map(np.stack, zip(*doubled, strict=True)))
    for batch in (doubled, stacked):
        assert checked(infeed_queue=None, batch=batch).ok
    with pytest.raises(ipu.errors.PipelineError, match="stack as many"):
        checked(batch=(stacked[0], stacked[1][:3]))


def test_too_few_elements() -> None:
    infeed = IPUInfeedQueue(ELEMENTS[:3])
    with pytest.raises(ipu.errors.OutOfRangeError):
        checked(infeed_queue=infeed)


# --- what is wrong --------------------------------------------------------------------------------


def patched(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any]) -> None:
    """Breaks the pipeline: accumulators of variables are changed after every micro-batch."""
    right = MicroBatch.accumulate_gradients

    def wrong(self: Any, gradients: Any, given: Any, counters: Any) -> Any:
        changed = {value: change(value, gradient) for value, gradient in gradients.items()}
        return right(self, changed, given, counters)

    monkeypatch.setattr(MicroBatch, "accumulate_gradients", wrong)


def test_a_pipeline_that_averages_by_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, lambda value, gradient: gradient / COUNT)
    found = checked()
    assert not found.ok
    assert {row.kind for row in found.rows if not row.ok} == {"gradient"}
    (text,) = found.findings
    assert text == "all gradients are 0.25 times the reference's: 4 is the number of micro-batches"
    with pytest.raises(ipu.errors.PipelineError, match=r"all gradients are 0\.25 times") as caught:
        found.raise_if_different()
    assert str(caught.value) == str(found)


def test_the_leaf_with_a_wrong_scale_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, lambda value, g: g * 3 if value.aval.shape == (5,) else g)
    found = checked(schedules=[Schedule.Grouped, Schedule.Interleaved])
    assert [row.name for row in found.rows if not row.ok] == ["gradient ['second']['b']"] * 2
    assert found.worst.name == "gradient ['second']['b']"
    assert found.findings == ["gradient ['second']['b'] is 3 times the reference's"]


def test_gradients_that_are_not_just_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, lambda value, g: g.at[0].add(1) if value.aval.shape == (5,) else -g)
    found = checked()
    assert found.findings == [
        "gradient ['first']['w'] and gradient ['second']['w'] are -1 times the reference's: the "
        "sign is the other one",
        "gradient ['second']['b'] differs, not just by a factor",
    ]


def test_numbers_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, lambda value, g: g * jnp.nan)
    found = checked()
    assert not found.ok
    assert "not finite in gradient ['first']['w']" in found.findings[-1]


def test_a_sum_against_the_mean_of_a_whole_batch() -> None:
    found = checked(reference=whole, whole_batch=True)
    assert not found.ok
    gradients, loss = found.findings
    assert gradients.startswith("all gradients are 4 times the reference's: 4 is the number of")
    assert "reduction_method=SUM adds 4 of them up" in gradients
    assert loss == "loss is 4 times the reference's: 4 is the number of micro-batches"
    assert checked(reference=whole, whole_batch=True, reduction_method="MEAN").ok


def test_a_mean_against_a_sum() -> None:
    def reference(variables: Any, x: Any, y: Any) -> Any:
        return COUNT * whole(variables, x, y)

    found = checked(reference=reference, reduction_method="MEAN")
    assert "reduction_method=MEAN averages 4 of them" in found.findings[0]


def test_a_reference_that_forgets_a_part() -> None:
    def reference(variables: Any, x: Any, y: Any) -> Any:
        second = {**variables["second"], "b": jax.lax.stop_gradient(variables["second"]["b"])}
        return whole({**variables, "second": second}, x, y)

    found = checked(reference=reference)
    assert found.findings == ["gradient ['second']['b'] differs, not just by a factor"]
    assert found.worst.relative == float("inf")


def test_a_reference_with_outputs() -> None:
    def reference(variables: Any, x: Any, y: Any) -> Any:
        loss, prediction = second(variables, *first(variables, x, y))
        return loss, (loss, 2 * prediction)

    found = checked(reference=reference)
    assert found.findings == ["output 1 is 0.5 times the reference's"]
    assert "DIFFERS" in str(found)
    (worst,) = (line for line in str(found).splitlines() if line.startswith(">"))
    assert "output 1" in worst


def test_long_tables_keep_what_differs() -> None:
    variables = {**VARIABLES, "more": {f"v{i:02}": np.ones(2, np.float32) for i in range(30)}}

    def reference(variables: Any, x: Any, y: Any) -> Any:
        return whole(variables, x, y) + variables["more"]["v17"].sum()

    found = checked(variables=variables, reference=reference)
    text = str(found)
    assert "gradient ['more']['v17']" in text
    assert "gradient ['more']['v18']" not in text
    assert "more that agree" in text
    assert len(text.splitlines()) < 20


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"whole_batch": True}, "whole_batch needs a reference"),
        ({"reference": lambda v, x, y: x}, "return one number"),
        ({"reference": lambda v, x, y: (1.0, 2.0, 3.0)}, "the reference returned 3 values"),
        (
            {"reference": lambda v, x, y: (whole(v, x, y), [])},
            "2 output arrays, the reference 0",
        ),
        (
            {"reference": lambda v, x, y: (whole(v, x, y), [x, y])},
            "output 0 has the shape",
        ),
    ],
)
def test_references_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ipu.errors.PipelineError, match=message):
        checked(**changed)


def test_unknown_arguments() -> None:
    with pytest.raises(ipu.errors.PipelineTypeError, match="no_such_thing"):
        checked(no_such_thing=1)


def test_compiled_code_is_no_place_for_it() -> None:
    with pytest.raises(ipu.errors.PipelineError, match="being compiled"):
        ipu.compile(lambda: checked().ok)()
