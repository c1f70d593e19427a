"""Facts of the original's estimators (area `estimator`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import metrics
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec, ModeKeys
from tests.ipujax.estimating import Runs, config, of, scalars

SGD = optax.sgd(0.1)


def plain(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
    """A model without variables, whose loss is the sum of an element."""
    del variables
    loss = jnp.mean(features + labels)
    ops = {"features": metrics.mean(features), "labels": metrics.mean(labels)}
    return IPUEstimatorSpec(mode, loss=loss, train_op=SGD, eval_metric_ops=ops)


def pairs(*values: tuple[float, float]) -> list[Any]:
    return [(np.float32([a]), np.float32([b])) for a, b in values]


@pytest.mark.fact("estimator.train_steps")
def test_steps_add_up_and_max_steps_is_rounded_up(tmp_path: Path) -> None:
    estimator = IPUEstimator(plain, config=config(tmp_path, iterations=2))
    runs, data = Runs(), of(pairs(*[(1.0, 1.0)] * 20))
    seen: list[tuple[int, Any]] = []
    for more in ({"steps": 4}, {"steps": 4}, {"max_steps": 9}):
        estimator.train(data, hooks=[runs], **more)
        seen.append((len(runs.steps), int(estimator.get_variable_value("global_step"))))
    assert seen == [(2, 4), (4, 8), (5, 10)]
    estimator.train(data, hooks=[runs], max_steps=9)
    assert len(runs.steps) == 5


@pytest.mark.fact("estimator.steps_multiple")
def test_steps_are_a_multiple_of_iterations_per_loop(tmp_path: Path) -> None:
    estimator = IPUEstimator(plain, config=config(tmp_path, iterations=3))
    with pytest.raises(ValueError, match="multiple of iterations_per_loop"):
        estimator.train(of([]), steps=1)
    with pytest.raises(ValueError, match="multiple of iterations_per_loop"):
        estimator.evaluate(of([]), steps=2)


@pytest.mark.fact("estimator.loss_each")
def test_each_step_has_its_element(tmp_path: Path) -> None:
    estimator, runs = IPUEstimator(plain, config=config(tmp_path)), Runs()
    estimator.train(of(pairs(*((i, i) for i in range(10)))), hooks=[runs], steps=6)
    assert runs.losses == [0, 2, 4, 6, 8, 10]


@pytest.mark.fact("estimator.replicated_invalid")
def test_replicas_that_do_not_learn_from_one_another_are_refused(tmp_path: Path) -> None:
    estimator = IPUEstimator(plain, config=config(tmp_path, replicas=4))
    with pytest.raises(ValueError, match="not a valid replicated training graph"):
        estimator.train(of(pairs(*[(1.0, 1.0)] * 8)), steps=1)


@pytest.mark.fact("estimator.host_call_one", "estimator.host_call_two")
def test_host_call_gets_what_each_step_sends(tmp_path: Path) -> None:
    sums = {"loss": 0.0, "features": 0.0, "labels": 0.0}

    def call(loss: Any, features: Any, labels: Any) -> Any:
        assert isinstance(loss, np.ndarray | np.generic)
        sums["loss"] += float(loss)
        sums["features"] += float(features.sum())
        sums["labels"] += float(labels.sum())
        return loss

    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        loss = jnp.mean(features + labels)
        host_call = call, [loss, features, labels]
        return IPUEstimatorSpec(mode, loss=loss, train_op=SGD, host_call=host_call)

    estimator = IPUEstimator(model_fn, config=config(tmp_path))
    estimator.train(of(pairs((1, 0), (1, 1))), steps=2)
    assert sums == {"loss": 3.0, "features": 2.0, "labels": 1.0}


@pytest.mark.fact("estimator.host_call_loop")
def test_host_call_needs_loops_of_one_iteration(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        loss = jnp.mean(features)
        return IPUEstimatorSpec(mode, loss=loss, train_op=SGD, host_call=(print, [loss]))

    estimator = IPUEstimator(model_fn, config=config(tmp_path, iterations=2))
    with pytest.raises(ValueError, match="iterations_per_loop=1"):
        estimator.train(of(scalars(1, 2)), steps=2)


@pytest.mark.fact("estimator.host_call_format")
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ([print, []], TypeError),
        ((print,), ValueError),
        ((1, []), TypeError),
        ((print, 1), TypeError),
    ],
)
def test_host_call_has_a_form(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        IPUEstimatorSpec(ModeKeys.TRAIN, loss=jnp.float32(0), train_op=SGD, host_call=call)


@pytest.mark.fact("estimator.labels_missing")
def test_labels_that_nobody_takes_are_an_error(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        return IPUEstimatorSpec(mode, loss=jnp.mean(features), train_op=SGD)

    estimator = IPUEstimator(model_fn, config=config(tmp_path))
    with pytest.raises(ValueError, match="does not take labels"):
        estimator.train(of(pairs((1, 1))), steps=1)


@pytest.mark.fact("estimator.eval")
def test_evaluation_gives_metrics_and_the_mean_loss(tmp_path: Path) -> None:
    estimator = IPUEstimator(plain, config=config(tmp_path))
    scores = estimator.evaluate(of([(np.float32([0, 2]), np.float32([1, 3]))]), steps=1)
    assert scores == {"features": 1.0, "labels": 2.0, "loss": 3.0, "global_step": 0}
    assert all(isinstance(value, np.generic) for value in scores.values())


def binary(labels: Any, predictions: Any) -> dict[str, metrics.Metric]:
    return {
        "accuracy": metrics.accuracy(labels, predictions),
        "precision": metrics.precision(labels, predictions),
        "recall": metrics.recall(labels, predictions),
        "mse": metrics.mean_squared_error(labels, predictions),
        "rmse": metrics.root_mean_squared_error(labels, predictions),
    }


BINARY = pairs((0, 0), (0, 1), (0, 0), (1, 1))


@pytest.mark.fact("estimator.eval_binary")
@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("iterations", [1, 2])
def test_metrics_add_up_over_steps(tmp_path: Path, on_host: bool, iterations: int) -> None:
    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        given: dict[str, Any] = {"eval_metrics": (binary, [labels, features])}
        if not on_host:
            given = {"eval_metric_ops": binary(labels, features)}
        return IPUEstimatorSpec(mode, loss=jnp.float32(0), **given)

    estimator = IPUEstimator(model_fn, config=config(tmp_path, iterations=iterations))
    scores = estimator.evaluate(of(BINARY), steps=4)
    wanted = {"accuracy": 0.75, "precision": 1.0, "recall": 0.5, "mse": 0.25, "rmse": 0.5}
    assert {name: scores[name] for name in wanted} == wanted


@pytest.mark.fact("estimator.eval_host_replicated")
@pytest.mark.parametrize("on_host", [False, True])
def test_metrics_add_up_over_replicas(tmp_path: Path, on_host: bool) -> None:
    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        loss = ipu.replication_ops.replication_index().astype(jnp.float32)
        given: dict[str, Any] = {
            "eval_metrics": (binary, {"labels": labels, "predictions": features})
        }
        if not on_host:
            given = {"eval_metric_ops": binary(labels, features)}
        return IPUEstimatorSpec(mode, loss=loss, **given)

    features, labels = (np.concatenate(rows) for rows in zip(*BINARY * 2, strict=True))
    data = list(zip(features.reshape(4, 2), labels.reshape(4, 2), strict=True))
    estimator = IPUEstimator(model_fn, config=config(tmp_path, replicas=4))
    scores = estimator.evaluate(of(data), steps=1)
    wanted = {"accuracy": 0.75, "precision": 1.0, "recall": 0.5, "mse": 0.25, "rmse": 0.5}
    assert {name: scores[name] for name in wanted} == wanted
    assert scores["loss"] == 1.5


@pytest.mark.fact("estimator.eval_missing", "estimator.eval_both")
def test_evaluation_has_metrics_in_one_way() -> None:
    with pytest.raises(ValueError, match="neither of eval_metric_ops and eval_metrics"):
        IPUEstimatorSpec(ModeKeys.EVAL, loss=jnp.float32(0))
    ops = {"mean": metrics.mean(jnp.float32([1]))}
    with pytest.raises(ValueError, match="both of eval_metric_ops and eval_metrics"):
        IPUEstimatorSpec(
            ModeKeys.EVAL, loss=jnp.float32(0), eval_metric_ops=ops, eval_metrics=(binary, [])
        )


def predicting(function: Any, **options: Any) -> IPUEstimator:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        return IPUEstimatorSpec(mode, predictions=function(features))

    return IPUEstimator(model_fn, config=config(None, **options))


@pytest.mark.fact("estimator.predict_two")
def test_predictions_come_one_by_one_or_in_batches() -> None:
    estimator = predicting(lambda features: features, iterations=2)
    data = of(scalars(2, 3))
    assert list(estimator.predict(data, num_predictions=2)) == [2.0, 3.0]
    batches = estimator.predict(data, yield_single_examples=False, num_predictions=2)
    assert [batch.tolist() for batch in batches] == [[2.0], [3.0]]


@pytest.mark.fact("estimator.predict_batch")
def test_predictions_of_batches_are_in_order() -> None:
    rows = np.float32([[2, 3], [3, 2], [3, 2], [2, 3], [2, 3], [3, 2]]).reshape(3, 2, 2)
    estimator = predicting(lambda features: jnp.argmax(features, axis=-1), iterations=3)
    assert list(estimator.predict(of(rows), num_predictions=6)) == [1, 0, 0, 1, 1, 0]
    batches = estimator.predict(of(rows), yield_single_examples=False, num_predictions=3)
    assert [batch.tolist() for batch in batches] == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.fact("estimator.predict_replicated")
def test_predictions_of_replicas_are_in_the_order_of_the_data() -> None:
    rows = np.float32([[1, 3], [5, 3], [7, 3], [9, 3]])
    estimator = predicting(lambda features: jnp.max(features, keepdims=True), replicas=4)
    assert list(estimator.predict(of(rows), num_predictions=4)) == [3.0, 5.0, 7.0, 9.0]
    batches = estimator.predict(of(rows), yield_single_examples=False, num_predictions=4)
    assert np.concatenate(list(batches)).tolist() == [3, 5, 7, 9]


@pytest.mark.fact("estimator.flat_dict")
def test_a_flat_dict_is_features(tmp_path: Path) -> None:
    def model_fn(variables: Any, features: Any, mode: str) -> IPUEstimatorSpec:
        total = sum(features[name] for name in ("input_ids", "input_mask"))
        if mode == ModeKeys.PREDICT:
            total = total + features["labels"]
        loss = jnp.mean(total + features["labels"])
        ops = {"total": metrics.mean(total)}
        return IPUEstimatorSpec(mode, predictions=total, loss=loss, eval_metric_ops=ops)

    rows = {"input_ids": [[0], [1]], "input_mask": [[2], [3]], "labels": [[4], [5]]}
    data = [{name: np.float32(v[i]) for name, v in rows.items()} for i in range(2)]
    estimator = IPUEstimator(model_fn, config=config(tmp_path))
    assert list(estimator.predict(of(data))) == [6.0, 9.0]
    assert estimator.evaluate(of(data), steps=2)["loss"] == 7.5


@pytest.mark.fact("estimator.global_step_read")
@pytest.mark.parametrize(("iterations", "mean"), [(1, 1.5), (2, 1.0)])
def test_the_global_step_stands_still_in_a_loop(
    tmp_path: Path, iterations: int, mean: float
) -> None:
    def model_fn(variables: Any, features: Any, mode: str, global_step: Any) -> IPUEstimatorSpec:
        ops = {"step": metrics.mean(global_step)}
        return IPUEstimatorSpec(mode, loss=jnp.mean(features), eval_metric_ops=ops)

    estimator = IPUEstimator(model_fn, config=config(tmp_path, iterations=iterations))
    assert estimator.evaluate(of(scalars(*range(4))), steps=4)["step"] == mean


@pytest.mark.fact("estimator.batch_size_div", "estimator.batch_size_only_train")
def test_batch_sizes_are_divided_by_the_replicas(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def input_fn(mode: str, params: dict[str, Any]) -> list[Any]:
        seen[mode] = params.get("batch_size")
        return pairs(*[(1.0, 1.0)] * 8)

    def model_fn(variables: Any, features: Any, labels: Any, mode: str) -> IPUEstimatorSpec:
        optimizer = ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.1))
        ops = {"mean": metrics.mean(features)}
        loss = jnp.mean(features) * variables["w"]
        return IPUEstimatorSpec(mode, features, loss, optimizer, ops)

    def use(**more: Any) -> dict[str, Any]:
        estimator = IPUEstimator(
            model_fn,
            config=config(None, replicas=2),
            init_fn=lambda key, features: {"w": jnp.float32(1)},
            **more,
        )
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn, steps=1)
        next(estimator.predict(input_fn))
        return dict(seen)

    sizes = use(train_batch_size=2, eval_batch_size=4, predict_batch_size=6)
    assert sizes == {"train": 1, "eval": 2, "infer": 3}
    assert use(train_batch_size=2) == {"train": 1, "eval": None, "infer": None}
    assert use(params={"batch_size": 42}) == {"train": 42, "eval": 42, "infer": 42}


@pytest.mark.fact("estimator.batch_size_workers")
def test_batch_sizes_are_divided_by_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief"}}'
    monkeypatch.setenv("TF_CONFIG", cluster.replace('"chief"}', '"chief", "index": 0}'))
    run = config(None, replicas=2)
    estimator = IPUEstimator(plain, config=run, train_batch_size=4)
    seen: list[int] = []
    with pytest.raises(StopIteration):
        estimator.train(lambda params: _note(seen, params["batch_size"]), steps=1)
    assert seen == [1]
    with pytest.raises(ValueError, match="cannot be divided"):
        IPUEstimator(plain, config=run, train_batch_size=1).train(of([]), steps=1)


def _note(seen: list[int], value: int) -> Any:
    seen.append(value)
    raise StopIteration


@pytest.mark.fact("estimator.config_type")
@pytest.mark.parametrize(
    "arguments", [{}, {"config": {"model_dir": "x"}}, {"config": config(), "params": [1]}]
)
def test_config_and_params_have_types(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"config is|params is"):
        IPUEstimator(plain, **arguments)
