"""Trained models as executables in folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_estimator import ModeKeys
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from tests.ipujax.estimating import config, linear_estimator, of, regression

pytest.importorskip("flatbuffers", reason="the extra `export` is not installed")
FEATURES = jax.ShapeDtypeStruct((4, 3), np.float32)


@pytest.mark.exhaustive
def test_an_export_takes_features_alone(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path / "model")
    estimator.train(of(regression()), steps=5)
    asset = tmp_path / "labels.txt"
    asset.write_text("a number")
    folder = estimator.export_saved_model(
        str(tmp_path / "exports"), lambda: FEATURES, {"words/labels.txt": str(asset)}, as_text=True
    )
    assert Path(folder, "assets.extra", "words", "labels.txt").read_text() == "a number"
    assert "infer.txt" in {path.name for path in Path(folder).iterdir()}
    x, _ = regression(1)[0]
    wanted = list(estimator.predict(of([x])))
    np.testing.assert_array_equal(ipu.load_executable(folder)(x), wanted)
    with pytest.warns(DeprecationWarning, match="export_saved_model"):
        again = estimator.export_savedmodel(str(tmp_path / "exports"), lambda: FEATURES)
    assert Path(again).parent == Path(folder).parent
    assert again != folder


def test_several_modes_are_exported_at_once(tmp_path: Path) -> None:
    estimator = linear_estimator(tmp_path / "model")
    estimator.train(of(regression()), steps=5)
    labelled = FEATURES, jax.ShapeDtypeStruct((4, 1), np.float32)
    receivers = {ModeKeys.EVAL: lambda: labelled, ModeKeys.PREDICT: lambda: FEATURES}
    folder = estimator.experimental_export_all_saved_models(str(tmp_path / "out"), receivers)
    x, y = regression(1)[0]
    assert ipu.load_executable(folder)(x).shape == (4, 1)
    scored = ipu.load_executable(str(Path(folder, "eval")))(x, y)
    wanted = estimator.evaluate(of([(x, y)]))["loss"]
    np.testing.assert_allclose(scored["loss"], wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="is None for mode"):
        estimator.export_saved_model(str(tmp_path / "out"), None)


def test_a_pipeline_is_exported_as_its_stages_in_a_row(tmp_path: Path) -> None:
    def model_fn(mode: str) -> Any:
        stages = [lambda v, x: v["w"] * x, lambda v, p: p + v["b"]]
        optimizer = ipu.pipelining_ops.OptimizerFunctionOutput

        def optimizer_function(loss: Any) -> Any:

            return optimizer(optax.sgd(0.1), jnp.mean(loss))

        return IPUPipelineEstimatorSpec(mode, stages, 4, optimizer_function=optimizer_function)

    estimator = IPUPipelineEstimator(
        model_fn,
        config=config(tmp_path / "model", iterations=4, shards=2),
        init_fn=lambda key, features: {"w": jnp.float32(2), "b": jnp.float32(1)},
    )
    data = of([np.float32([i]) for i in range(8)])
    estimator.train(data, steps=4)
    folder = estimator.export_saved_model(
        str(tmp_path / "out"), lambda: jax.ShapeDtypeStruct((1,), np.float32)
    )
    serve = ipu.load_executable(folder)
    wanted = list(estimator.predict(data, num_predictions=3))
    given = [float(serve(np.float32([i]))[0]) for i in range(3)]
    np.testing.assert_allclose(given, wanted, rtol=1e-6)
