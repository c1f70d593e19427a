"""Sequential models as pipelines: the original's `sequential_pipeline_test.py`.

With `pipeline_save_restore_test.py` and `sequential_pipeline_save_restore_test.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipujax.keras import PipelineStage
from ipujax.pipelining_ops import PipelineSchedule
from tests.ipujax.keras.twins import Counter, alike, keras, on_ipus, values

# Long, and the modules beside this one hold a sample of the same.
pytestmark = pytest.mark.exhaustive

X = np.random.default_rng(4).random((48, 8), np.float32)
Y = np.full((48, 2), 0.2, np.float32)
RUN: dict[str, Any] = {"batch_size": 1, "shuffle": False, "verbose": 0}


def dense(units: int, **more: Any) -> Any:
    initializer = keras.initializers.GlorotUniform(seed=units)
    return keras.layers.Dense(units, kernel_initializer=initializer, **more)


def simple(**more: Any) -> Any:
    return keras.Sequential([keras.Input((8,)), dense(4, **more), dense(2, **more)])


def pipelined(model: Any = None, count: int = 8, steps: int = 16, **options: Any) -> Any:
    """A model of two layers on two stages."""
    model = model or simple()
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=count, **options)
    model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=steps)
    return model


def test_fit_cpu_match() -> None:
    alone = simple()
    alone.compile("sgd", "mse", metrics=["mae"])
    history = alone.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    with on_ipus(2):
        model = pipelined()
        ours = model.fit(X, Y, epochs=2, **RUN).history
    alike((ours, values(model.weights)), (history, values(alone.weights)))


def test_gradient_accumulation_steps() -> None:
    """The error names both numbers."""
    with on_ipus(2):
        model = pipelined(count=12)
        with pytest.raises(ValueError, match=r"steps_per_execution=16.*12"):
            model.fit(X, Y, **RUN)
        model.evaluate(X, Y, batch_size=1, verbose=0)


def test_fit_history_steps_per_run() -> None:
    counter = Counter()
    with on_ipus(2):
        pipelined().fit(X, Y, callbacks=[counter], **RUN)
    assert counter.counts["on_train_batch_end"] == 48 // 16


def test_weights_that_come_with_the_first_batch() -> None:
    """A Sequential model without an input has stages before it has weights."""
    with on_ipus(2):
        model = pipelined(keras.Sequential([dense(4), dense(2)]))
        model.fit(X, Y, **RUN)
        other = pipelined()
        other.fit(X, Y, **RUN)
    alike(values(model.weights), values(other.weights), rtol=0, atol=0)


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
@pytest.mark.parametrize("accumulate", [None, True])
@pytest.mark.sampled(3)
def test_schedules(schedule: str, accumulate: bool | None) -> None:
    """How stages take turns, and where results add up, changes no number."""
    with on_ipus(2):
        model = pipelined(
            accumulate_outfeed=accumulate,
            pipeline_schedule=PipelineSchedule[schedule],
        )
        history = model.fit(X[:16], Y[:16], **RUN).history
        evaluated = model.evaluate(X[:16], Y[:16], batch_size=1, verbose=0)
        plain = pipelined()
        alike(plain.fit(X[:16], Y[:16], **RUN).history, history)
        alike(plain.evaluate(X[:16], Y[:16], batch_size=1, verbose=0), evaluated)


def test_gradient_accumulation_dtype() -> None:
    """Gradients of half precision may be accumulated in another."""
    dtypes: list[str] = []

    class Watching(keras.optimizers.SGD):
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            dtypes.extend(str(grad.dtype) for grad in grads)
            return super().apply(grads, trainable_variables)

    with on_ipus(2):
        model = pipelined(simple(dtype="float16"), gradient_accumulation_dtype=np.float32)
        model.compile(Watching(), "mse", steps_per_execution=16)
        model.fit(X[:16].astype(np.float16), Y[:16].astype(np.float16), **RUN)
    assert set(dtypes) == {"float32"}
    assert all(weight.dtype == np.float16 for weight in values(model.weights))


def functional() -> Any:
    inputs = keras.Input((8,))
    with PipelineStage(0):
        outputs = dense(4)(inputs)
    with PipelineStage(1):
        outputs = dense(2)(outputs)
    model = keras.Model(inputs, outputs)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=16)
    return model


@pytest.mark.parametrize("build", [pipelined, functional])
def test_can_save_weights(tmp_path: Path, build: Any) -> None:
    """What was trained, saved and loaded trains on as if nothing had been."""
    path = tmp_path / "trained.weights.h5"
    with on_ipus(2):
        model = build()
        model.fit(X, Y, **RUN)
        model.save_weights(path)
        trained = values(model.weights)
        model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
        assert all(np.all(weight == 0) for weight in values(model.weights))
        other = build()
        other.optimizer.build(other.trainable_variables)
        other.load_weights(path)
        alike(values(other.weights), trained, rtol=0, atol=0)
        other.fit(X, Y, **RUN)
        assert all(
            np.any(one != two) for one, two in zip(values(other.weights), trained, strict=True)
        )


@pytest.mark.parametrize("build", [pipelined, functional])
def test_can_do_training_checkpoint(tmp_path: Path, build: Any) -> None:
    path = tmp_path / "{epoch}.weights.h5"
    save = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True)
    with on_ipus(2):
        model = build()
        model.fit(X, Y, epochs=2, callbacks=[save], **RUN)
        other = build()
        other.optimizer.build(other.trainable_variables)
        other.load_weights(tmp_path / "2.weights.h5")
    alike(values(other.weights), values(model.weights), rtol=0, atol=0)


@pytest.mark.parametrize("build", [pipelined, functional])
def test_invalid_restore_path(tmp_path: Path, build: Any) -> None:
    with on_ipus(2):
        model = build()
        with pytest.raises(FileNotFoundError):
            model.load_weights(tmp_path / "nothing.weights.h5")
        model.fit(X, Y, **RUN)
