"""The ONNX file that ipujax brings with it: PyTorch has exported it."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import jax
from onnx.reference import ReferenceEvaluator

import ipujax as ipu

MODEL = resources.files("ipujax.demo").joinpath("digits.onnx").read_bytes()
IMAGES = np.random.default_rng(0).normal(size=(16, 1, 8, 8)).astype(np.float32)


def test_the_digits_model_gives_the_scores_of_onnx() -> None:
    model = ipu.frontends.from_onnx(MODEL)
    (scores,), _ = ipu.compile(model.apply)(model.variables, IMAGES)
    (expected,) = ReferenceEvaluator(MODEL).run(None, {"images": IMAGES})
    np.testing.assert_allclose(scores, np.asarray(expected), atol=1e-5)


@pytest.mark.exhaustive
def test_all_weights_of_the_digits_model_are_trainable() -> None:
    model = ipu.frontends.from_onnx(MODEL)
    gradients = jax.grad(lambda variables: model.apply(variables, IMAGES)[0][0].std())(
        model.variables
    )
    assert sorted(gradients) == sorted(model.trainable)
    assert all(np.abs(value).max() > 0 for value in gradients.values())
