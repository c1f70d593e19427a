"""Losses and metrics worked out by hand, with and without weights of samples and classes.

The original's `metrics_correctness_test.py`. With kernels of ones every output is three times
its input, so with inputs 1 to 5 and targets of twice and once the input, the squared errors are
1, 4, 9, 16, 25 (`first`) and four times these (`second`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Kind, keras, model_of, on_ipus

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

X = np.arange(1.0, 6.0, dtype=np.float32).reshape(-1, 1)
WEIGHTS = {
    "first": np.array([2, 3, 4, 5, 6], np.float32),
    "second": np.array([3.5, 2.5, 1.5, 0.5, 3], np.float32),
}
# By hand: sums of weight * squared error over samples (losses) or weights (weighted metrics).
PLAIN = {
    "loss": 55,
    "first_loss": 11,
    "second_loss": 44,
    "first_mse": 11,
    "second_mse": 44,
    "first_weighted": 11,
    "second_weighted": 44,
}
WEIGHTED = PLAIN | {
    "loss": 144,
    "first_loss": 56,
    "second_loss": 88,
    "first_weighted": 14,
    "second_weighted": 40,
}


class TwoBranches(keras.Model):
    """Two inputs through one shared layer, each to an output of its own."""

    def __init__(self, shared: Any, first: Any, second: Any) -> None:
        super().__init__()
        self.shared, self.first, self.second = shared, first, second

    def call(self, inputs: Any) -> Any:
        one, two = inputs
        return {"first": self.first(self.shared(one)), "second": self.second(self.shared(two))}


def ones(units: int, **more: Any) -> Any:
    return keras.layers.Dense(units, kernel_initializer="ones", trainable=False, **more)


def mean_squared(name: str) -> Any:
    return keras.metrics.MeanSquaredError(name=name)


def two_branches(subclassed: bool) -> Any:
    layers = ones(3), ones(1, name="first"), ones(1, name="second")
    model: Any = TwoBranches(*layers)
    if not subclassed:
        inputs = [keras.Input((1,)), keras.Input((1,))]
        model = keras.Model(inputs, model.call(inputs))
    return model


def two_outputs(subclassed: bool) -> Any:
    model = two_branches(subclassed)
    names = ("first", "second")
    model.compile(
        optimizer="rmsprop",
        loss={name: "mse" for name in names},
        metrics={name: [mean_squared("mse")] for name in names},
        weighted_metrics={name: [mean_squared("weighted")] for name in names},
    )
    return model


TARGETS = {"first": 2 * X, "second": X}
RUN: dict[str, Any] = {"batch_size": 5, "verbose": 0}


def check(result: dict[str, Any], expected: dict[str, float]) -> None:
    assert set(result) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("subclassed", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_fit(subclassed: bool, weights: Any) -> None:
    with on_ipus():
        history = two_outputs(subclassed).fit(
            [X, X], TARGETS, sample_weight=weights, epochs=2, shuffle=False, **RUN
        )
    check(history.history, WEIGHTED if weights else PLAIN)
    assert all(len(epochs) == 2 for epochs in history.history.values())


@pytest.mark.parametrize("subclassed", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_eval(subclassed: bool, weights: Any) -> None:
    with on_ipus():
        result = two_outputs(subclassed).evaluate(
            [X, X], TARGETS, sample_weight=weights, return_dict=True, **RUN
        )
    check(result, WEIGHTED if weights else PLAIN)


def test_eval_of_arbitrary_weights_in_batches_of_two_sizes() -> None:
    random = np.random.default_rng(0)
    x, y, weight = (random.random((50, *shape), np.float32) for shape in [(1,), (1,), ()])

    def weighted(batch: int) -> float:
        targets = {"first": y, "second": y}
        weights = {"first": weight, "second": weight}
        result = model.evaluate(
            [x, x], targets, sample_weight=weights, batch_size=batch, return_dict=True, verbose=0
        )
        return result["first_weighted"]

    with on_ipus():
        model = two_outputs(subclassed=False)
        assert weighted(5) == pytest.approx(weighted(10), rel=1e-5)


@pytest.mark.parametrize("subclassed", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
def test_on_batch(subclassed: bool, weights: Any, method: str) -> None:
    with on_ipus():
        run = getattr(two_outputs(subclassed), method)
        result = run([X, X], TARGETS, sample_weight=weights, return_dict=True)
    check(result, WEIGHTED if weights else PLAIN)


# Of one input and output: samples 1 to 4, squared errors 1, 4, 9, 16.
ONE_X, ONE_Y = X[:4], 2 * X[:4]
SAMPLES = np.array([2, 3, 4, 5], np.float32)
CLASSES = {number: 1.0 for number in range(10)} | {2: 2.0, 4: 3.0, 6: 4.0, 8: 5.0}
ONE_PLAIN = {"loss": 7.5, "mse": 7.5, "weighted": 7.5}
ONE_WEIGHTED = {"loss": 32.5, "mse": 7.5, "weighted": 130 / 14}


def one_output(kind: Kind) -> Any:
    model = model_of(kind, [ones(3), ones(1)], (1,))
    model.compile(
        "rmsprop", "mse", metrics=[mean_squared("mse")], weighted_metrics=[mean_squared("weighted")]
    )
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "weights", [{}, {"sample_weight": SAMPLES}, {"class_weight": CLASSES}], ids=str
)
def test_fit_of_one_output(kind: Kind, weights: dict[str, Any]) -> None:
    with on_ipus():
        history = one_output(kind).fit(
            ONE_X, ONE_Y, batch_size=2, epochs=2, shuffle=False, verbose=0, **weights
        )
    check(history.history, ONE_WEIGHTED if weights else ONE_PLAIN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [None, SAMPLES])
def test_eval_of_one_output(kind: Kind, weight: Any) -> None:
    with on_ipus():
        model = one_output(kind)
        result = model.evaluate(
            ONE_X, ONE_Y, sample_weight=weight, batch_size=2, return_dict=True, verbose=0
        )
    check(result, ONE_PLAIN if weight is None else ONE_WEIGHTED)


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        ("train_on_batch", {}),
        ("train_on_batch", {"sample_weight": SAMPLES}),
        ("train_on_batch", {"class_weight": CLASSES}),
        ("test_on_batch", {}),
        ("test_on_batch", {"sample_weight": SAMPLES}),
    ],
)
def test_on_batch_of_one_output(method: str, weights: dict[str, Any]) -> None:
    with on_ipus():
        run = getattr(one_output("sequential"), method)
        result = run(ONE_X, ONE_Y, return_dict=True, **weights)
    check(result, ONE_WEIGHTED if weights else ONE_PLAIN)


@pytest.mark.parametrize(("reduction", "scale"), [("sum_over_batch_size", 1.0), ("sum", 2.0)])
@pytest.mark.parametrize("run", ["fit", "evaluate"])
def test_reductions_of_losses(reduction: str, scale: float, run: str) -> None:
    """Means over batches of two: a sum of two samples is twice their mean."""
    x, y = X[:4], {"first": 2 * X[:4], "second": X[:4]}
    weights = {name: weight[:4] for name, weight in WEIGHTS.items()}
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    with on_ipus():
        model = two_branches(subclassed=False)
        model.compile("rmsprop", {"first": loss, "second": loss})
        arguments: dict[str, Any] = dict(sample_weight=weights, batch_size=2, verbose=0)
        if run == "fit":
            result = model.fit([x, x], y, shuffle=False, **arguments).history
        else:
            result = model.evaluate([x, x], y, return_dict=True, **arguments)
    errors = np.array([1, 4, 9, 16])
    first = scale * np.mean(errors * weights["first"])
    second = scale * np.mean(4 * errors * weights["second"])
    check(result, {"loss": first + second, "first_loss": first, "second_loss": second})
