"""Variables of metrics hold one evaluation only: the original's `metrics_test.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipujax.keras.twins import KINDS, Kind, keras, model_of, on_ipus, values

# With kernels of ones, a row of ones gives nearly 1 and a row of zeros 0.5, of which the
# default threshold makes "no".
YES, NO = np.ones((32, 4), np.float32), np.zeros((32, 4), np.float32)
TRUE, FALSE = np.ones((32, 1), np.float32), np.zeros((32, 1), np.float32)
ALL = np.concatenate([YES, NO, NO, YES]), np.concatenate([TRUE, FALSE, TRUE, FALSE])


def evaluate_twice(kind: Kind, metric: Any, x: Any, y: Any) -> list[list[Any]]:
    layers = [
        keras.layers.Dense(3, activation="relu", kernel_initializer="ones"),
        keras.layers.Dense(1, activation="sigmoid", kernel_initializer="ones"),
    ]
    model = model_of(kind, layers, (4,))
    model.compile(loss="mae", metrics=[metric], optimizer="rmsprop")
    held: list[list[Any]] = []
    for _ in range(2):
        model.evaluate(x, y, verbose=0)
        held.append(values(metric.variables))
    return held


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("FalsePositives", YES, FALSE),
        ("FalseNegatives", NO, TRUE),
        ("TrueNegatives", NO, FALSE),
        ("TruePositives", YES, TRUE),
    ],
)
def test_reset_states_of_counts(kind: Kind, name: str, x: Any, y: Any) -> None:
    with on_ipus():
        held = evaluate_twice(kind, getattr(keras.metrics, name)(), x, y)
    assert held == [[[32.0]], [[32.0]]]


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("Precision", np.concatenate([YES, YES]), np.concatenate([TRUE, FALSE])),
        ("Recall", np.concatenate([YES, NO]), np.concatenate([TRUE, TRUE])),
    ],
)
def test_reset_states_of_ratios(name: str, x: Any, y: Any) -> None:
    with on_ipus():
        held = evaluate_twice("sequential", getattr(keras.metrics, name)(), x, y)
    assert held == [[[32.0], [32.0]]] * 2


@pytest.mark.parametrize(
    ("thresholds", "row"), [({"num_thresholds": 3}, 1), ({"thresholds": [0.5]}, 1)], ids=str
)
def test_reset_states_auc(thresholds: dict[str, Any], row: int) -> None:
    with on_ipus():
        held = evaluate_twice("sequential", keras.metrics.AUC(**thresholds), *ALL)
    for variables in held:
        assert [variable[row] for variable in variables] == [32.0] * 4
