"""Facts of the original's pipeline estimators (area `pipeline_estimator`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ipujax import metrics
from ipujax.errors import EstimatorTypeError
from ipujax.ipu_estimator import IPUEstimatorSpec, ModeKeys
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipujax.pipelining_ops import OptimizerFunctionOutput, StageOutput
from tests.ipujax.estimating import Runs, config, of


def minimized(loss: Any) -> OptimizerFunctionOutput:
    return OptimizerFunctionOutput(optax.sgd(0.5), loss)


def estimator_of(model_fn: Any, folder: Path | None = None, **options: Any) -> IPUPipelineEstimator:
    run = config(folder, **{"shards": 2} | options)
    return IPUPipelineEstimator(
        model_fn, config=run, init_fn=lambda key, features: {"w": jnp.float32(2)}
    )


@pytest.mark.fact("pipeline_estimator.fn_args")
def test_the_model_fn_takes_no_features() -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="must not have `features`"):
        estimator_of(model_fn)


@pytest.mark.fact("pipeline_estimator.fn_return")
def test_the_model_fn_returns_a_pipelines_spec(tmp_path: Path) -> None:
    def model_fn(mode: str) -> Any:
        return IPUEstimatorSpec(mode, loss=jnp.float32(0), train_op=optax.sgd(0.1))

    with pytest.raises(TypeError, match="IPUPipelineEstimatorSpec"):
        estimator_of(model_fn, tmp_path).train(of([np.float32(1)]), steps=1)


@pytest.mark.fact("pipeline_estimator.num_shards_unique")
def test_the_devices_of_the_stages_are_counted(tmp_path: Path) -> None:
    def model_fn(mode: str) -> Any:
        stages = [lambda v, x: x] * 5
        return IPUPipelineEstimatorSpec(
            mode, stages, 1, optimizer_function=minimized, device_mapping=[0, 1, 2, 3, 0]
        )

    with pytest.raises(ValueError, match="needs 4 IPUs"):
        estimator_of(model_fn, tmp_path).train(of([np.float32(1)]), steps=1)


@pytest.mark.fact("pipeline_estimator.needs_optimizer", "pipeline_estimator.spec_errors")
@pytest.mark.parametrize(
    ("mode", "arguments", "message"),
    [
        (ModeKeys.TRAIN, {"gradient_accumulation_count": 2}, "no optimizer_function"),
        (ModeKeys.EVAL, {"gradient_accumulation_count": 2}, "no eval_metrics_fn"),
        (ModeKeys.PREDICT, {}, "no gradient_accumulation_count"),
        (
            ModeKeys.PREDICT,
            {"gradient_accumulation_count": 2, "accumulate_outfeed": True},
            "accumulate_outfeed",
        ),
    ],
)
def test_the_spec_has_what_the_mode_needs(
    mode: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        IPUPipelineEstimatorSpec(mode, [lambda x: x] * 2, **arguments)


@pytest.mark.fact("pipeline_estimator.iterations_div")
@pytest.mark.parametrize(("iterations", "count"), [(4, 3), (1, 2)])
def test_a_loop_is_whole_executions(tmp_path: Path, iterations: int, count: int) -> None:
    def model_fn(mode: str) -> Any:
        stages = [lambda v, x: x] * 2
        return IPUPipelineEstimatorSpec(mode, stages, count, optimizer_function=minimized)

    estimator = estimator_of(model_fn, tmp_path, iterations=iterations)
    with pytest.raises(ValueError, match="iterations_per_loop is"):
        estimator.train(of([np.float32(1)]), steps=iterations)


def analytic(mode: str) -> IPUPipelineEstimatorSpec:
    """loss = w x + y."""
    stages = [lambda v, x, y: (v["w"] * x, y), lambda v, product, y: product + y]
    return IPUPipelineEstimatorSpec(mode, stages, 8, optimizer_function=minimized)


@pytest.mark.fact(
    "pipeline_estimator.analytic_g8_u2", "pipeline_estimator.global_step_counts_microbatches"
)
def test_weights_losses_and_steps_are_those_of_the_original(tmp_path: Path) -> None:
    estimator, runs = estimator_of(analytic, tmp_path, iterations=16), Runs()
    data = [(np.float32(1.5), np.float32(1))] * 16
    logged: list[tuple[float, int]] = []
    for _ in range(2):
        estimator.train(of(data), hooks=[runs], steps=16)
        weight = float(estimator.get_variable_value("w"))
        logged.append((weight, int(estimator.get_variable_value("global_step"))))
    assert logged == [(-10.0, 16), (-22.0, 32)]


@pytest.mark.fact("pipeline_estimator.predict")
@pytest.mark.parametrize("by_name", [False, True])
def test_predictions_are_in_order(by_name: bool) -> None:
    def model_fn(mode: str) -> Any:
        def last(variables: Any, product: Any) -> Any:
            square = product**2
            return {"square": square} if by_name else square

        stages = [lambda v, x: v["w"] / 2 * x, last]
        return IPUPipelineEstimatorSpec(mode, stages, 4)

    estimator = estimator_of(model_fn, iterations=4)
    data = [(np.float32([i]), np.float32([0])) for i in range(12)]  # labels are left out
    given = list(estimator.predict(of(data), num_predictions=7))
    assert [each["square"] if by_name else each for each in given] == [i**2 for i in range(7)]


@pytest.mark.fact("pipeline_estimator.predict_two")
def test_one_array_is_predicted() -> None:
    def model_fn(mode: str) -> Any:
        stages = [lambda v, x: (x, x), lambda v, x, y: (x, y)]
        return IPUPipelineEstimatorSpec(mode, stages, 4)

    estimator = estimator_of(model_fn, iterations=4)
    with pytest.raises(ValueError, match="return exactly one, or a dict"):
        next(estimator.predict(of([np.float32([1])] * 4)))


def evaluated(by_name: bool, device_mapping: list[int], count: int, wrong: bool = False) -> Any:
    def model_fn(mode: str) -> Any:
        def last(variables: Any, x: Any) -> Any:
            square = x * x
            return {"partial": x, "squared": square} if by_name else (x, square)

        def eval_metrics_fn(partial: Any, squared: Any) -> Any:
            return squared if wrong else {"mean": metrics.mean(partial), "loss": squared}

        stages = [*[lambda v, x: x] * (len(device_mapping) - 1), last]
        return IPUPipelineEstimatorSpec(
            mode, stages, count, eval_metrics_fn=eval_metrics_fn, device_mapping=device_mapping
        )

    return model_fn


@pytest.mark.fact("pipeline_estimator.eval_dict")
def test_metrics_are_a_dict() -> None:
    estimator = estimator_of(evaluated(False, [0, 1], 4, wrong=True), iterations=4)
    with pytest.raises(TypeError, match="eval_metrics_fn returns"):
        estimator.evaluate(of([np.float32([1])] * 4), steps=4)


@pytest.mark.fact("pipeline_estimator.eval", "pipeline_estimator.eval_same_ipu")
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    ("mapping", "count", "mean", "loss"),
    [([0, 1], 2, 0.5, 0.5), ([0, 1, 0], 3, 1.0, np.float32(5 / 3))],
)
def test_evaluation_gives_metrics_and_the_mean_loss(
    by_name: bool, mapping: list[int], count: int, mean: float, loss: float
) -> None:
    estimator = estimator_of(evaluated(by_name, mapping, count), iterations=count)
    scores = estimator.evaluate(of([np.float32([i]) for i in range(count)]), steps=count)
    assert (scores["mean"], scores["loss"]) == (mean, loss)


def test_the_loss_of_an_evaluation_may_be_a_metric() -> None:
    def returning(loss_of: Callable[[Any], Any]) -> Any:
        def model_fn(mode: str) -> Any:
            stages = [lambda v, x: x, lambda v, x: x * x]
            return IPUPipelineEstimatorSpec(
                mode, stages, 2, eval_metrics_fn=lambda x: {"loss": loss_of(x)}
            )

        estimator = estimator_of(model_fn, iterations=2)
        return estimator.evaluate(of([np.float32([1]), np.float32([3])]), steps=2)

    assert returning(metrics.mean)["loss"] == 5.0
    assert returning(lambda x: x.tolist())["loss"] == 5.0
    error = returning(lambda x: metrics.root_mean_squared_error(x, 0 * x))["loss"]
    np.testing.assert_allclose(error, np.sqrt((1 + 81) / 2), rtol=1e-6)  # over both, not a mean
    for wrong in ("text", None, {"a": 1}, object()):
        with pytest.raises(EstimatorTypeError, match="the metric `loss` cannot be an array"):
            returning(lambda x, wrong=wrong: wrong)


def test_inputs_follow_the_global_step(tmp_path: Path) -> None:
    def model_fn(mode: str, global_step: Any) -> Any:
        stages = [lambda v, step, x: v["w"] * 0 * x + step, lambda v, p: p]
        return IPUPipelineEstimatorSpec(
            mode, stages, 4, optimizer_function=minimized, inputs=[jnp.float32(global_step)]
        )

    estimator, runs = estimator_of(model_fn, tmp_path, iterations=8), Runs()
    losses: list[float] = []

    class Losses(Runs):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            losses.append(float(np.mean(run_values.results)) / 4)

    estimator.train(of([np.float32(1)] * 16), hooks=[runs, Losses()], steps=16)
    assert losses == [0.0, 8.0]
    assert runs.steps == [8, 16]


def test_stages_change_the_state_that_init_fn_gives(tmp_path: Path) -> None:
    def model_fn(mode: str) -> Any:
        def first(v: Any, s: Any, x: Any) -> Any:
            return StageOutput(v["w"] * x, {"seen": s["seen"] + 1})

        stages = [first, lambda v, s, product: product + s["seen"]]
        return IPUPipelineEstimatorSpec(mode, stages, 4, optimizer_function=minimized)

    def init_fn(key: Any, features: Any) -> Any:
        return {"w": jnp.float32(2)}, {"seen": jnp.float32(0)}

    run = config(tmp_path, shards=2, iterations=4)
    estimator = IPUPipelineEstimator(model_fn, config=run, init_fn=init_fn)
    for steps in (8, 12):
        estimator.train(of([np.float32(0)] * 8), max_steps=steps)
        assert float(estimator.get_variable_value("state/seen")) == steps
    given = estimator.predict(of([np.float32(0)] * 4), yield_single_examples=False)
    assert [float(each) for each in given] == [13, 14, 15, 16]
