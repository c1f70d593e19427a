"""`set_pipelining_options(stages="plan")`: a plan assigns layers, and the numbers stay Keras's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import IPUError
from ipujax.keras import PipelineStage
from tests.ipujax.keras.twins import Layered, alike, keras, on_ipus, values

WIDTH, COUNT, ROWS = 16, 4, 4
X = np.random.default_rng(0).normal(size=(64, WIDTH)).astype(np.float32)
Y = np.arange(64) % 10


def deep() -> Any:
    layers = [keras.layers.Dense(WIDTH, activation="tanh", name=f"d{i}") for i in range(6)]
    return keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(10, name="top")])


def with_skips() -> Any:
    """A skip over many layers, a nested model, moving statistics, and a regularizer."""
    start = keras.Input((WIDTH,))
    x = keras.layers.Dense(WIDTH, kernel_regularizer="l2")(start)
    inner = keras.Sequential(
        [keras.layers.Dense(WIDTH, "tanh"), keras.layers.BatchNormalization()], name="inner"
    )
    y = inner(x)
    for _ in range(3):
        y = keras.layers.Dense(WIDTH, "tanh")(y)
    return keras.Model(start, keras.layers.Dense(10)(keras.layers.Add()([x, y])))


def with_a_shared_layer() -> Any:
    """A layer that is called first and last, and others around and between."""
    start = keras.Input((WIDTH,))
    shared = keras.layers.Dense(WIDTH, "tanh")
    x = shared(keras.layers.Dense(WIDTH, "tanh")(start))
    x = shared(keras.layers.Dense(WIDTH, "tanh")(x))
    return keras.Model(start, keras.layers.Dense(10)(keras.layers.Dense(WIDTH)(x)))


def compiled(build: Callable[[], Any]) -> Any:
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    model = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], steps_per_execution=COUNT)
    return model


def trained(model: Any) -> Any:
    history = model.fit(
        X, Y, batch_size=ROWS, epochs=2, shuffle=False, verbose=0, validation_data=(X, Y)
    ).history
    return history, values(model.weights), model.predict(X, batch_size=ROWS, verbose=0)


def accumulating(build: Callable[[], Any]) -> Any:
    """What one IPU makes of the same batches."""
    with on_ipus(1):
        model = compiled(build)
        model.set_gradient_accumulation_options(COUNT)
        return trained(model)


def stages_of(model: Any) -> list[Any]:
    return [
        getattr(entry, "pipeline_stage", entry) for entry in model.get_pipeline_stage_assignment()
    ]


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (deep, {}),
        pytest.param(
            deep,
            {"pipeline_schedule": "interleaved_one_f_one_b"},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            with_skips,
            {"pipeline_schedule": ipu.schedules.one_f_one_b},
            marks=pytest.mark.exhaustive,
        ),
        (with_a_shared_layer, {"pipeline_schedule": "Grouped"}),
    ],
)
def test_a_planned_model_trains_as_one_ipu_does(build: Any, options: dict[str, Any]) -> None:
    with on_ipus(4):
        model = compiled(build)
        model.set_pipelining_options(COUNT, stages="plan", **options)
        ours = trained(model)
        pipeline = model.report("train").pipeline
    assert pipeline.stages > 1
    alike(ours, accumulating(build), rtol=1e-4)


def test_the_assignment_is_the_plans() -> None:
    with on_ipus(4):
        model = compiled(deep)
        model.set_pipelining_options(COUNT, stages="plan", pipeline_schedule="one_f_one_b")
        trained(model)
        stages = stages_of(model)
        assert stages == sorted(stages)
        assert {*stages} == {*range(max(stages) + 1)}
        assert model.report("train").num_ipus == max(stages) + 1
        model.set_pipelining_options(COUNT)
        assert stages_of(model) == [None] * 7


def test_layers_that_share_weights_are_in_one_stage() -> None:
    with on_ipus(4):
        model = compiled(with_a_shared_layer)
        model.set_pipelining_options(COUNT, stages="plan")
        trained(model)
        entries = model.get_pipeline_stage_assignment()
    shared = {e.pipeline_stage for e in entries if e.layer.name == "dense"}
    assert [e.layer.name for e in entries].count("dense") == 2
    assert len(shared) == 1


def test_what_is_left_of_the_ipus_holds_no_replicas() -> None:
    def build() -> Any:
        return keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(10)])

    with on_ipus(4):
        model = compiled(build)
        model.set_pipelining_options(COUNT, stages="plan")
        ours = trained(model)
        assert stages_of(model) == [None]
    alike(ours, accumulating(build), rtol=1e-4)


def test_predictions_before_training() -> None:
    with on_ipus(2):
        model = compiled(deep)
        model.set_pipelining_options(COUNT, stages="plan")
        found = model.predict(X, batch_size=ROWS, verbose=0)
        assert max(stages_of(model)) == 1
        ours = trained(model)
    expected = compiled(deep).predict(X, batch_size=ROWS, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    alike(ours, accumulating(deep), rtol=1e-4)


def test_a_plan_of_recomputation() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2, True
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = compiled(deep)
        model.set_pipelining_options(COUNT, stages="plan", pipeline_schedule="one_f_one_b")
        ours = trained(model)
    alike(ours, accumulating(deep), rtol=1e-4)


def staged() -> Any:
    with PipelineStage(0):
        first = keras.layers.Dense(WIDTH)
    with PipelineStage(1):
        return keras.Sequential([keras.Input((WIDTH,)), first, keras.layers.Dense(10)])


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (deep, {"stages": "best"}, "stages is 'best'"),
        (deep, {"stages": 4}, "stages"),
        (deep, {"stages": "plan", "device_mapping": [0, 1]}, "device_mapping and stages"),
        (lambda: Layered([keras.layers.Dense(10)]), {"stages": "plan"}, "only its `call` knows"),
        (staged, {"stages": "plan"}, "are assigned to stages"),
        (
            deep,
            {"stages": "plan", "pipeline_schedule": lambda *_, **__: None},
            "not registered",
        ),
    ],
)
def test_models_that_no_plan_is_made_for(build: Any, options: Any, message: str) -> None:
    def train() -> None:
        model = compiled(build)
        model.set_pipelining_options(COUNT, **options)
        trained(model)

    with on_ipus(2), pytest.raises(IPUError, match=message):
        train()


def test_a_weight_update_is_of_a_known_number_of_batches() -> None:
    with on_ipus(2):
        model = compiled(deep)
        model.set_pipelining_options(stages="plan")
        with pytest.raises(IPUError, match="gradient_accumulation_steps_per_replica has"):
            trained(model)
