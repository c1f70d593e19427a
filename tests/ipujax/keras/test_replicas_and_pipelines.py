"""Replicas, accumulation and pipelines give what Keras's own accumulation gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("keras")

import keras

import ipujax as ipu
from ipujax.errors import KerasError
from ipujax.ipu_strategy import IPUStrategy
from ipujax.pipelining_ops import PipelineSchedule, RecomputationMode
from tests.ipujax.keras.modelling import cnn, compiled, images
from tests.numbers import use_ipus

pytestmark = pytest.mark.exhaustive  # each trains a model several times

LAYERS = keras.layers


def used(model: Any, epochs: int = 2) -> list[Any]:
    """Everything that a model gives after some training on 32 images, four at a time."""
    x, y = images(32)
    history = model.fit(x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0).history
    return [
        *history.values(),
        *model.get_weights(),
        model.evaluate(x, y, batch_size=4, verbose=0),
        model.predict(x, batch_size=4, verbose=0),
        int(model.optimizer.iterations),
    ]


def accumulating(steps: int) -> Any:
    """Keras's own accumulation."""
    return keras.optimizers.Adam(gradient_accumulation_steps=steps)


def check_same(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("replicas", "steps"), [(2, 1), (1, 4), (2, 2)])
def test_replicas_and_accumulation_are_one_large_batch(replicas, steps):
    theirs = used(cnn(normalized=False, optimizer=accumulating(replicas * steps)))
    use_ipus(replicas)
    with IPUStrategy().scope():
        model = cnn(normalized=False, steps_per_execution=4)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=steps)
        check_same(used(model), theirs)


def test_moving_statistics_are_averaged_over_replicas():
    x, y = images(8)
    use_ipus(2)
    with IPUStrategy().scope():
        model = cnn(steps_per_execution=2)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    mean = model.layers[1].moving_mean.numpy()
    halves = []
    for half in (x[:4], x[4:]):
        alone = cnn()
        alone(half, training=True)
        halves.append(alone.layers[1].moving_mean.numpy())
    np.testing.assert_allclose(mean, np.mean(halves, 0), rtol=1e-5, atol=1e-7)


def functional(optimizer: Any = "adam", **options: Any) -> Any:
    """A model with a skip connection over the cut, a regularizer, dropout and batch norm."""
    keras.utils.set_random_seed(1)
    x = LAYERS.Input((8, 8, 2))
    early = LAYERS.Conv2D(4, 3, activation="relu", kernel_regularizer="l2")(x)
    y = LAYERS.Dropout(0.2)(LAYERS.BatchNormalization()(early))
    y = LAYERS.Add()([LAYERS.Conv2D(4, 3, padding="same")(y), early])
    y = LAYERS.Dropout(0.3)(LAYERS.Flatten()(y))
    return compiled(keras.Model(x, LAYERS.Dense(4)(y)), optimizer, **options)


def staged(optimizer: Any = "adam", **options: Any) -> Any:
    """The same in two stages."""
    model = functional(optimizer, steps_per_execution=8)
    assignment = model.get_pipeline_stage_assignment()
    for number, entry in enumerate(assignment):
        entry.pipeline_stage = int(number >= 3)
    model.set_pipeline_stage_assignment(assignment)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, **options)
    return model


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_pipeline_is_accumulation(schedule):
    theirs = used(functional(accumulating(4)), epochs=1)
    use_ipus(2)
    with IPUStrategy().scope():
        model = staged(pipeline_schedule=schedule)
        check_same(used(model, epochs=1), theirs)
        report = model.report()
        assert (report.pipeline.schedule, report.pipeline.stages) == (schedule.name.lower(), 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"device_mapping": [1, 0]},
        {"device_mapping": [0, 0], "pipeline_schedule": PipelineSchedule.Sequential},
        {"offload_activations": True, "offload_weight_update_variables": True},
    ],
)
def test_options_of_a_pipeline_change_no_numbers(options):
    theirs = used(functional(accumulating(4)), epochs=1)
    use_ipus(2 if options.get("device_mapping") != [0, 0] else 1)
    with IPUStrategy().scope():
        check_same(used(staged(**options), epochs=1), theirs)


def test_recomputation_draws_the_same_dropout():
    theirs = used(functional(accumulating(4)), epochs=1)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    mode = RecomputationMode.RecomputeAndBackpropagateInterleaved
    with IPUStrategy().scope():
        check_same(used(staged(recomputation_mode=mode), epochs=1), theirs)


class Subclassed(keras.Model):
    """Its `call` says which stage is which."""

    def __init__(self) -> None:
        super().__init__()
        self.first = LAYERS.Conv2D(4, 3, activation="relu")
        self.normalized = LAYERS.BatchNormalization()
        self.flat = LAYERS.Flatten()
        self.dropped = LAYERS.Dropout(0.3)
        self.last = LAYERS.Dense(4, kernel_regularizer="l2")

    def call(self, x: Any, training: bool = False) -> Any:
        with ipu.keras.PipelineStage(0):
            x = self.normalized(self.first(x), training=training)
        with ipu.keras.PipelineStage(1):
            return self.last(self.dropped(self.flat(x), training=training))


def test_a_subclassed_model_says_its_stages_in_call():
    def made(**options: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = Subclassed()
        model(images(1)[0])
        return compiled(model, **options)

    theirs = used(made(optimizer=accumulating(4)), epochs=1)
    use_ipus(2)
    with IPUStrategy().scope():
        model = made(steps_per_execution=8)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        check_same(used(model, epochs=1), theirs)
    stages = [entry.pipeline_stage for entry in model.get_pipeline_stage_assignment()]
    assert stages == [0, 0, 1, 1, 1]


@pytest.fixture
def half_precision() -> Iterator[None]:
    """Layers compute in float16, variables are float32."""
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("half_precision")
@pytest.mark.parametrize("pipelined", [False, True])
def test_mixed_float16_scales_the_loss(pipelined):
    def scaled(steps: int | None = None) -> Any:
        inner = keras.optimizers.SGD(0.01, gradient_accumulation_steps=steps)
        # From a scale on that lets no gradient overflow, of which Keras leaves out micro-batches.
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0)

    theirs = used(functional(scaled(4 if pipelined else None)), epochs=1)
    use_ipus(2 if pipelined else 1)
    with IPUStrategy().scope():
        model = staged(scaled()) if pipelined else functional(scaled(), steps_per_execution=8)
        ours = used(model, epochs=1)
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


def test_numbers_that_do_not_divide():
    x, y = images(24)
    use_ipus(2)
    with IPUStrategy().scope():
        model = cnn(steps_per_execution=3)
        with pytest.raises(KerasError, match=r"steps_per_execution=3 .* no multiple of 2 replicas"):
            model.fit(x, y, batch_size=4, verbose=0)
        model = cnn(steps_per_execution=4)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(KerasError, match=r"6 batches, which 2 replicas x 2 .* = 4 cannot"):
            model.fit(x, y, batch_size=4, verbose=0)
        with pytest.raises(KerasError, match=r"last of the 5 batches has 4 examples only"):
            model.fit(x, y, batch_size=5, verbose=0)
        with pytest.raises(KerasError, match=r"is 1 batch for model .*, which 2 replicas x 2 "):
            model.train_on_batch(x[:4], y[:4])
        model.fit(x, y, batch_size=4, steps_per_epoch=4, verbose=0)
        assert int(model.optimizer.iterations) == 1


def test_too_little_data_for_replicas():
    x, y = images(6)
    use_ipus(2)
    with IPUStrategy().scope():
        model = cnn(steps_per_execution=2)
        with pytest.raises(KerasError, match=r"is 1 batch for .*\n.*\n.*use fit, .* of 2 batches"):
            model.train_on_batch(x, y)
        with pytest.raises(KerasError, match=r"last of the 2 .*\n.*\n.*have at least 2 batches"):
            model.predict(x, batch_size=4, verbose=0)


def test_a_pipeline_over_more_ipus_than_there_are():
    x, y = images(8)
    use_ipus(1)
    with IPUStrategy().scope():
        model = cnn(steps_per_execution=2)
        model.set_pipeline_stage_assignment([0, 1] + [2] * (len(model.layers) - 2))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(KerasError, match=r"on 3 IPUs, and .* has 1\n.*\n.*_ipus = 4, or"):
            model.fit(x, y, batch_size=4, verbose=0)


class Sharded(keras.layers.Layer):
    """Its two products are on an IPU each."""

    def build(self, input_shape: Any) -> None:
        self.first = self.add_weight(shape=(input_shape[-1], 8), name="first")
        self.second = self.add_weight(shape=(8, 4), name="second")

    def call(self, x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = keras.ops.relu(x @ self.first)
        with ipu.scopes.ipu_shard(1):
            return x @ self.second


@pytest.mark.parametrize("replicas", [1, 2])
def test_layers_on_ipus_of_their_own_leave_room_for_fewer_replicas(replicas):
    def made(**options: Any) -> Any:
        keras.utils.set_random_seed(1)
        layers = [LAYERS.Input((8, 8, 2)), LAYERS.Flatten(), Sharded()]
        return compiled(keras.Sequential(layers), **options)

    steps = replicas if replicas > 1 else None
    theirs = used(made(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=steps)))
    use_ipus(2 * replicas)
    with IPUStrategy().scope():
        check_same(used(made(steps_per_execution=4)), theirs)


def test_a_schedule_that_the_micro_batches_do_not_fit():
    x, y = images(8)
    use_ipus(2)
    with IPUStrategy().scope():
        model = staged()
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(KerasError) as caught:
            model.fit(x, y, batch_size=1, verbose=0)
    said = str(caught.value)
    assert f"model {model.name!r} cannot be pipelined" in said
    assert "gradient_accumulation_steps_per_replica=2" in said
    assert "use 4 micro-batches" in said


def test_options_that_would_not_act_are_refused():
    x, y = images(8)
    use_ipus(2)
    with IPUStrategy().scope():
        model = staged()
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(ValueError, match="which is pipelined"):
            model.fit(x, y, batch_size=4, verbose=0)


class Told(keras.Model):
    """Its `call` must be told whether it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.last = LAYERS.Flatten(), LAYERS.Dense(4)

    def call(self, x: Any, training: bool) -> Any:
        with ipu.keras.PipelineStage(0):
            x = self.flat(x)
        with ipu.keras.PipelineStage(1):
            return self.last(x) * (2 if training else 1)


def test_stages_are_found_of_a_call_that_must_be_told_whether_it_trains():
    x, y = images(8)
    use_ipus(2)
    with IPUStrategy().scope():
        model = compiled(Told(), "sgd", steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        assert np.isfinite(model.fit(x, y, batch_size=2, verbose=0).history["loss"]).all()
