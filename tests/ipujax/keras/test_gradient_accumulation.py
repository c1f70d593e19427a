"""Several batches of several replicas in one update: `gradient_accumulation_test.py`.

With `execution_parameters_test.py`: what steps in an execution must be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from tests.ipujax.keras.twins import KINDS, Kind, alike, keras, model_of, on_ipus, values

RANDOM = np.random.default_rng(21)
X = RANDOM.random((64, 6, 2), np.float32)
Y = RANDOM.integers(0, 5, 64)


def classifier(kind: Kind = "sequential") -> Any:
    """A model of fixed weights."""
    dense = keras.layers.Dense(
        5, activation="softmax", kernel_initializer=keras.initializers.Orthogonal(seed=3)
    )
    return model_of(kind, [keras.layers.Flatten(), dense], (6, 2))


def accumulating(
    kind: Kind = "sequential",
    steps: int = 4,
    replicas: int = 1,
    optimizer: Any = "adam",
    method: Any = "mean",
) -> Any:
    model = classifier(kind)
    model.compile(
        optimizer, "sparse_categorical_crossentropy", steps_per_execution=2 * steps * replicas
    )
    model.set_gradient_accumulation_options(
        gradient_accumulation_steps_per_replica=steps,
        gradient_accumulation_reduction_method=method,
    )
    return model


def large_batches(kind: Kind = "sequential", optimizer: Any = "adam") -> Any:
    """The weights and losses of Keras alone, with batches as large as an update accumulates."""
    model = classifier(kind)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    history = model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    return history, values(model.weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("method", ["mean", "running_mean", Reduction.MEAN])
@pytest.mark.sampled(2)
def test_models(kind: Kind, replicas: int, method: Any) -> None:
    with on_ipus(replicas):
        model = accumulating(kind, 4, replicas, method=method)
        batch = 16 // 4 // replicas
        history = model.fit(X, Y, batch_size=batch, epochs=2, shuffle=False, verbose=0).history
    alike((history, values(model.weights)), large_batches(kind))
    assert int(model.optimizer.iterations.value) == 2 * 64 // 16


@pytest.mark.parametrize(
    ("method", "replicas", "words"),
    [
        (None, 2, "averages those of 4 micro-batches and averages those of 2 replicas "
         "(gradient_accumulation_reduction_method=MEAN)"),
        ("running_mean", 1, "averages those of 4 micro-batches "
         "(gradient_accumulation_reduction_method=RUNNING_MEAN)"),
        ("sum", 1, "adds up those of 4 micro-batches "
         "(gradient_accumulation_reduction_method=SUM)"),
    ],
)  # fmt: skip
def test_how_gradients_are_reduced_is_logged_once(
    method: str | None, replicas: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the factor by which the original's sums are larger: all that is averaged here."""
    with on_ipus(replicas):
        model = accumulating("functional", 4, replicas, "sgd", method or "mean")
        if method is None:
            model.set_gradient_accumulation_options()
        for _ in range(2):
            model.fit(X, Y, batch_size=2, verbose=0)
        model.evaluate(X, Y, batch_size=2, verbose=0)
        for epochs in range(2):  # another program of the same model
            model.set_gradient_accumulation_options(
                gradient_accumulation_reduction_method=method or "mean"
            )
            model.fit(X, Y, batch_size=2, epochs=epochs + 1, verbose=0)
    (line,) = [text for text in caplog.messages if "For the gradients" in text]
    assert f"model `{model.name}` {words}. Keras for the IPU added up" in line
    factor = {"sum": 1, "running_mean": 4, None: 8}[method]
    assert (f"got {factor} times as much" in line) == (factor > 1)


def test_one_batch_per_update_logs_no_reduction(caplog: pytest.LogCaptureFixture) -> None:
    with on_ipus():
        model = accumulating(steps=1)
        model.fit(X, Y, batch_size=2, verbose=0)
    assert "For the gradients" not in caplog.text


def test_sums_of_gradients() -> None:
    """The sum of four gradients is their mean at four times the learning rate."""
    with on_ipus():
        model = accumulating(optimizer=keras.optimizers.SGD(0.01 / 4), method="sum")
        model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    alike(values(model.weights), large_batches(optimizer="sgd")[1])


def test_keras_own_accumulation_gives_the_same() -> None:
    """`gradient_accumulation_steps` of Keras's optimizers does here what it does there."""

    def weights() -> Any:
        model = classifier()
        optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)
        model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=8)
        model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return values(model.weights)

    with on_ipus():
        ours = weights()
    alike(ours, weights())
    alike(ours, large_batches()[1], rtol=1e-4)


def test_other_options_make_another_program() -> None:
    with on_ipus():
        model = accumulating(steps=2)
        model.fit(X, Y, batch_size=4, verbose=0)
        assert int(model.optimizer.iterations.value) == 8
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
        model.fit(X, Y, batch_size=4, verbose=0)
        assert int(model.optimizer.iterations.value) == 8 + 4
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=1)
        model.fit(X, Y, batch_size=4, verbose=0)
        assert int(model.optimizer.iterations.value) == 8 + 4 + 16


def test_saving_keeps_the_weights(tmp_path: Path) -> None:
    with on_ipus():
        model = accumulating()
        model.fit(X, Y, batch_size=4, verbose=0)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    alike(values(loaded.weights), values(model.weights), rtol=0, atol=0)


@pytest.mark.parametrize("mixed", [True, False])
def test_an_optimizer_that_overrides_apply(mixed: bool) -> None:
    """It is asked once per update, with the mean of the batches' gradients."""

    class Halves(keras.optimizers.SGD):
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            return super().apply([grad / 2 for grad in grads], trainable_variables)

    def weights(**options: Any) -> Any:
        dense = keras.layers.Dense(
            5,
            kernel_initializer="ones",
            dtype="mixed_float16" if mixed else "float32",
        )
        model = keras.Sequential([keras.Input((12,)), dense])
        model.compile(Halves(0.1), "mse", steps_per_execution=options.get("steps", 1))
        if "steps" in options:
            model.set_gradient_accumulation_options(options["steps"])
        data = X.reshape(64, 12), np.zeros((64, 5), np.float32)
        model.fit(*data, batch_size=options["batch"], shuffle=False, verbose=0)
        return values(model.weights)

    with on_ipus():
        ours = weights(steps=4, batch=4)
    alike(ours, weights(batch=16), rtol=2e-3 if mixed else 1e-5)


@pytest.mark.parametrize(("replicas", "steps"), [(1, 3), (8, 3), (2, 4)])
def test_steps_per_execution_must_divide(replicas: int, steps: int) -> None:
    """The error names both numbers; the model keeps its weights and may be compiled anew."""
    with on_ipus(replicas):
        model = accumulating(steps=steps)
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
        if replicas * steps == 8:
            model.steps_per_execution = 4
        with pytest.raises(ValueError, match=rf"steps_per_execution=4.*{replicas * steps}"):
            model.fit(X, Y, batch_size=1, verbose=0)
        assert len(model.get_weights()) == 2
        # Neither evaluation nor prediction accumulates.
        if replicas == 1:
            model.evaluate(X, Y, batch_size=4, verbose=0)
            model.predict(X, batch_size=4, verbose=0)


def test_batches_must_divide() -> None:
    with on_ipus():
        model = accumulating(steps=4)
        with pytest.raises(ValueError, match="steps_per_epoch"):
            model.fit(X[:20], Y[:20], batch_size=2, verbose=0)
        with pytest.raises(ValueError, match="steps_per_epoch"):
            model.fit(X[:9], Y[:9], batch_size=2, verbose=0)
        model.fit(X[:16], Y[:16], batch_size=2, verbose=0)


@pytest.mark.parametrize("steps", [0, -1, 1.5, "two"])
def test_steps_must_be_a_positive_integer(steps: Any) -> None:
    model = classifier()
    with on_ipus(), pytest.raises((ValueError, TypeError), match="gradient_accumulation_steps"):
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=steps)
