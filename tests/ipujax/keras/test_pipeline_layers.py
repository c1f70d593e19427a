"""Layers in the stages of pipelines, some in several: the original's `pipeline_test.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipujax.keras import PipelineStage
from tests.ipujax.keras.twins import alike, keras, on_ipus, values

X = np.random.default_rng(1).random((24, 4), np.float32)
RUN: dict[str, Any] = {"shuffle": False, "verbose": 0}


def dense(units: int = 4, **more: Any) -> Any:
    return keras.layers.Dense(
        units, kernel_initializer=keras.initializers.Orthogonal(seed=units), **more
    )


def trained(
    build: Callable[[Any], Any], targets: Any, pipelined: bool, ipus: int = 2, **options: Any
) -> Any:
    """A model after an epoch; an update is of twelve batches of one example, or one of twelve."""
    scope = PipelineStage if pipelined else contextlib.nullcontext
    model = build(scope)
    if not pipelined:
        model.compile("sgd", "mse")
        model.fit(X, targets, batch_size=12, **RUN)
        return model
    with on_ipus(ipus):
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=12, **options)
        model.compile("sgd", "mse", steps_per_execution=12)
        model.fit(X, targets, batch_size=1, **RUN)
    return model


def reused(scope: Any) -> Any:
    """One layer in the first and the last of three stages."""
    inputs = keras.Input((4,))
    first, second = dense(), dense()
    with scope(0):
        outputs = first(inputs)
    with scope(1):
        outputs = second(outputs)
    with scope(2):
        outputs = first(outputs)
    return keras.Model(inputs, outputs)


@pytest.mark.exhaustive
def test_fit_with_reused_layer() -> None:
    ours = trained(reused, X, pipelined=True, device_mapping=[0, 1, 0])
    alike(values(ours.weights), values(trained(reused, X, pipelined=False).weights))


def test_fit_fails_with_same_layer_on_different_devices() -> None:
    with pytest.raises(ValueError, match="IPU"):
        trained(reused, X, pipelined=True, ipus=4, device_mapping=[0, 1, 2])


def test_fit_with_stages_defined_for_layer_and_nodes() -> None:
    """The stage of a call goes before that in which its layer was made."""

    def build(scope: Any) -> Any:
        with scope(0):
            layer = dense()
        outputs: Any = keras.Input((4,))
        inputs = outputs
        for stage in range(3):
            with scope(stage):
                outputs = layer(outputs)
        return keras.Model(inputs, outputs)

    ours = trained(build, X, pipelined=True, ipus=1, device_mapping=[0, 0, 0])
    assert [each.pipeline_stage for each in ours.get_pipeline_stage_assignment()] == [0, 1, 2]
    alike(values(ours.weights), values(trained(build, X, pipelined=False).weights))


def test_fit_with_stages_defined_only_for_layers() -> None:
    """All calls of a layer are in the stage in which it was made."""

    def build(scope: Any) -> Any:
        layers = []
        for stage in range(2):
            with scope(stage):
                layers.append(dense())
        inputs = keras.Input((4,))
        return keras.Model(inputs, layers[1](layers[0](layers[0](inputs))))

    ours = trained(build, X, pipelined=True, ipus=1, device_mapping=[0, 0])
    assert [each.pipeline_stage for each in ours.get_pipeline_stage_assignment()] == [0, 0, 1]
    alike(values(ours.weights), values(trained(build, X, pipelined=False).weights))


def test_pipeline_train_argument() -> None:
    told: list[Any] = []

    class Told(keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            told.append(training)
            return inputs

    def build(scope: Any) -> Any:
        inputs = keras.Input((4,))
        with scope(0):
            outputs = dense()(inputs)
        with scope(1):
            outputs = Told()(outputs)
        told.clear()
        return keras.Model(inputs, outputs)

    model = trained(build, X, pipelined=True)
    assert True in told
    told.clear()
    with on_ipus(2):
        model.predict(X, batch_size=1, verbose=0)
    assert True not in told


def test_predict_with_pipelined_nonlinear_graph() -> None:
    """Two branches whose calls are ordered by their stages, not by the graph."""
    one, two = keras.Input((4,)), keras.Input((4,))
    layer = dense()
    with PipelineStage(0):
        first = keras.layers.Flatten()(one)
    with PipelineStage(1):
        second = keras.layers.Flatten()(two)
    with PipelineStage(2):
        first = layer(first)
    with PipelineStage(3):
        second = layer(second)
    model = keras.Model([one, two], [first, second])
    expected = model.predict([X, -X], batch_size=4, verbose=0)
    with on_ipus(1):
        model.set_pipelining_options(device_mapping=[0] * 4)
        model.compile("sgd", ["mse", "mse"], steps_per_execution=6)
        alike(model.predict([X, -X], batch_size=4, verbose=0), expected)


@pytest.mark.exhaustive
def test_skip_connections_over_stages() -> None:
    def build(scope: Any) -> Any:
        inputs = keras.Input((4,))
        with scope(0):
            first = dense()(inputs)
        with scope(1):
            second = dense()(first)
        with scope(2):
            outputs = keras.layers.Add()([first, dense(4, name="last")(second), inputs])
        return keras.Model(inputs, outputs)

    ours = trained(build, X, pipelined=True, ipus=4)
    alike(values(ours.weights), values(trained(build, X, pipelined=False).weights))


@pytest.mark.exhaustive
def test_batch_normalization() -> None:
    """Moving statistics see every micro-batch in turn; the original warns that its own do not."""
    x = np.arange(32, dtype=np.float32).reshape(-1, 1)
    mean, variance = 0.0, 1.0
    for batch in x.reshape(8, 4):
        mean = 0.5 * mean + 0.5 * batch.mean()
        variance = 0.5 * variance + 0.5 * batch.var()
    with on_ipus(2):
        inputs = keras.Input((1,))
        with PipelineStage(0):
            norm = keras.layers.BatchNormalization(momentum=0.5)
            outputs = norm(inputs)
        with PipelineStage(1):
            outputs = keras.layers.Dense(1)(outputs)
        model = keras.Model(inputs, outputs)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        model.compile("sgd", "mse", steps_per_execution=8)
        model.fit(x, x, batch_size=4, **RUN)
    np.testing.assert_allclose(norm.moving_mean.value, [mean], rtol=1e-5)
    np.testing.assert_allclose(norm.moving_variance.value, [variance], rtol=1e-5)


def test_uint8() -> None:
    """Numbers of eight bits are cast in the first stage."""
    inputs = keras.Input((1,), dtype="uint8")
    with PipelineStage(0):
        outputs = keras.layers.Lambda(lambda x: keras.ops.cast(x, "float16"))(inputs)
        outputs = keras.layers.Dense(10, dtype="float16", kernel_initializer="ones")(outputs)
    with PipelineStage(1):
        outputs = keras.layers.Dense(1, dtype="float16", kernel_initializer="ones")(outputs)
    model = keras.Model(inputs, outputs)
    model.compile(steps_per_execution=8)
    with on_ipus(2):
        predicted = model.predict(np.arange(16, dtype=np.uint8), batch_size=1, verbose=0)
    assert predicted.dtype == np.float16
    np.testing.assert_array_equal(predicted, 10 * np.arange(16).reshape(-1, 1))


def test_accumulation_must_be_said() -> None:
    inputs = keras.Input((4,))
    with PipelineStage(0):
        outputs = dense()(inputs)
    with PipelineStage(1):
        outputs = dense()(outputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", steps_per_execution=6)
    with (
        on_ipus(2),
        pytest.raises(ValueError, match="gradient_accumulation_steps_per_replica"),
    ):
        model.fit(X, X, batch_size=2, verbose=0)


def test_steps_per_execution_must_divide() -> None:
    inputs = keras.Input((4,))
    with PipelineStage(0):
        outputs = dense()(inputs)
    with PipelineStage(1):
        outputs = dense()(outputs)
    model = keras.Model(inputs, outputs)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=7)
    model.compile("sgd", "mse", steps_per_execution=16)
    with on_ipus(2), pytest.raises(ValueError, match=r"steps_per_execution=16.*7"):
        model.fit(X, X, batch_size=2, verbose=0)


def test_too_few_ipus() -> None:
    with pytest.raises(ValueError, match="IPU"):
        trained(reused, X, pipelined=True, ipus=1, device_mapping=[0, 1, 0])


def two_stages(base: Any = None) -> Any:
    """A model of two inputs."""
    inputs = [keras.Input((4,)) for _ in range(2)]
    with PipelineStage(0):
        outputs = dense()(inputs[0])
    with PipelineStage(1):
        outputs = keras.layers.Add()([dense(4, name="last")(outputs), inputs[1]])
    model = (base or keras.Model)(inputs, outputs)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    model.compile("sgd", "mse", steps_per_execution=4)
    return model


@pytest.mark.exhaustive
def test_input_validation() -> None:
    """A missing input is Keras's own error, and the model works on."""
    with on_ipus(2):
        model = two_stages()
        with pytest.raises(ValueError, match="input"):
            model.fit(X, X, batch_size=1, verbose=0)
        model.fit([X, X], X, batch_size=1, verbose=0)


@pytest.mark.parametrize("step", ["train_step", "test_step", "predict_step"])
def test_steps_of_its_own(step: str) -> None:
    """A pipeline runs Keras's steps; the error names the one that a model has written anew."""

    def own(self: Any, *arguments: Any) -> Any:
        return getattr(keras.Model, step)(self, *arguments)

    with on_ipus(2):
        model = two_stages(type("Own", (keras.Model,), {step: own}))
        runs: dict[str, Callable[[], Any]] = {
            "train_step": lambda: model.fit([X, X], X, batch_size=1, verbose=0),
            "test_step": lambda: model.evaluate([X, X], X, batch_size=1, verbose=0),
            "predict_step": lambda: model.predict([X, X], batch_size=1, verbose=0),
        }
        with pytest.raises(ValueError, match=step):
            runs.pop(step)()
        for run in runs.values():
            run()
