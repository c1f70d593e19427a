"""PopART's own operators, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax.frontends.onnx.operators import ONNX
from ipujax.frontends.onnx.operators import graphcore as ops
from ipujax.frontends.onnx.operators import graphcore_losses as losses

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
P = np.exp(X) / np.exp(X).sum(1, keepdims=True)
LABELS = np.array([1, 0, 5, 2], np.int32)
PICKED = -np.log(P[np.arange(4), LABELS])


def close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, 2e-5, 1e-6)


def test_losses() -> None:
    given: dict[str, Any] = {"lambda": 0.1}
    close(losses.l1(X, "Sum", **given), 0.1 * np.abs(X).sum())  # type: ignore
    close(losses.nll(P, LABELS), PICKED.mean())  # type: ignore
    close(losses.nll(np.log(P), LABELS, "None", inputIsLogProbability=1), PICKED)  # type: ignore
    close(losses.nll(P, LABELS, ignoreIndex=0), PICKED[[0, 2, 3]].mean())  # type: ignore
    close(losses.identity_loss(X), X.mean())  # type: ignore


def test_parts() -> None:
    index, part = np.array([2], np.uint32), np.ones((4, 3), np.float32)
    close(ops.dynamic_slice(X, index, axes=[1], sizes=[3]), X[:, 2:5])  # type: ignore
    expected = X.copy()
    expected[:, 2:5] += 1
    close(ops.dynamic_add(X, index, part, [1], [3]), expected)  # type: ignore


def test_elements_and_shapes() -> None:
    assert "ai.graphcore.Round" in ONNX.names()
    close(ops.scaled_add(X, X, scale0=2.0), 3 * X)  # type: ignore
    close(ops.reshape_to(X, shape=[6, 4]), X.reshape(6, 4))  # type: ignore
    close(ops.sort(X, 1, 1)[0], -np.sort(-X, 1))  # type: ignore
