"""Models of Keras as functions of JAX: names, numbers, parts, stages."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.doors.keras import keras_conversion as frontend
from ipujax.errors import FrontendError, FrontendTypeError, MissingExtraError, PipelineError
from ipujax.frontends import Part, from_keras
from lowering import marks
from tests.ipujax.feeding import configure
from tests.ipujax.pipelining import close, run_pipeline

keras = pytest.importorskip("keras")
layers: Any = keras.layers

X = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)
KEY = jax.random.key(7)


def named(parts: Any) -> list[str]:
    return [part.name for part in parts]


def functional() -> Any:
    """A nested model, a shared layer, dropout and batch normalization."""
    keras.utils.set_random_seed(1)
    encoder = keras.Sequential(
        [layers.Dense(3, name="dense_1"), layers.Dropout(0.5, name="drop")], name="encoder"
    )
    shared = layers.Dense(3, activation="tanh", name="shared")
    start = keras.Input((3,))
    x = shared(encoder(shared(start)))
    x = layers.BatchNormalization(name="norm")(x) + start
    return keras.Model(start, layers.Dense(2, name="head")(x))


class Staged(keras.Model):
    """A subclassed model that says in which stages its layers run."""

    def __init__(self) -> None:
        super().__init__()
        self.first = layers.Dense(4, name="first")
        self.drop = layers.Dropout(0.5, name="drop")
        self.block = keras.Sequential([layers.Dense(4, name="dense")], name="block")
        self.norm = layers.BatchNormalization(name="norm")
        self.last = layers.Dense(2, name="last")

    def call(self, x: Any, training: bool = False) -> Any:
        with jax.named_scope(marks.write_mark(marks.STAGE, "0")):
            x = self.drop(self.first(x), training=training)
        skip = x
        with jax.named_scope(marks.write_mark(marks.STAGE, "1")):
            x = self.norm(self.block(x), training=training)
        with jax.named_scope(marks.write_mark(marks.STAGE, "2")):
            return self.last(x + skip)


def staged() -> Any:
    keras.utils.set_random_seed(2)
    model = Staged()
    model(X)
    return model


# --- what a model holds and computes --------------------------------------------------------------


def test_variables_have_the_paths_that_keras_gives_them() -> None:
    model = functional()
    found = from_keras(model)
    assert list(found.variables) == [v.path for v in model.variables]
    assert "encoder/dense_1/kernel" in found.variables
    assert found.trainable == tuple(v.path for v in model.trainable_variables)
    model.get_layer("head").trainable = False
    assert "head/kernel" not in from_keras(model).trainable


def test_variables_of_one_path_have_names_of_their_own() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(3, name="a"), layers.Dense(3)])
    model.layers[1].kernel._path = model.layers[0].kernel.path
    kernels = list(from_keras(model).variables)[::2]
    assert kernels == [f"{model.name}/a/kernel", f"{model.name}/a/kernel_1"]


@pytest.mark.parametrize("make", [functional, staged])
def test_outputs_are_those_of_the_model(make: Any) -> None:
    model = make()
    found = from_keras(model)
    outputs, variables = jax.jit(found.apply)(found.variables, X)
    close(outputs, model(X))
    assert variables.keys() == found.variables.keys()
    for name, value in variables.items():
        np.testing.assert_array_equal(value, found.variables[name])


def test_training_changes_what_keras_changes() -> None:
    model = functional()
    found = from_keras(model, training=True)
    outputs, variables = jax.jit(found.apply)(found.variables, X)
    close(outputs, model(X, training=True))
    changed = [n for n, v in variables.items() if not np.array_equal(v, found.variables[n])]
    assert len(changed) == 3  # the mean, the variance and dropout's seed
    for variable in model.variables:
        close(variables[variable.path], np.asarray(variable.value))


def test_a_key_takes_the_place_of_the_seeds() -> None:
    found = from_keras(functional(), training=True)
    apply = jax.jit(found.apply)
    first, variables = apply(found.variables, X, key=KEY)
    again, _ = apply(found.variables, X, key=KEY)
    other, _ = apply(found.variables, X, key=jax.random.key(8))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    (seed,) = (name for name in variables if "seed" in name)
    np.testing.assert_array_equal(variables[seed], found.variables[seed])


def test_transformations_and_compiled_programs() -> None:
    model = functional()
    found = from_keras(model)

    def loss(variables: Any, x: Any) -> Any:
        return jnp.square(found.apply(variables, x)[0]).sum()

    gradients = jax.jit(jax.grad(loss, allow_int=True))(found.variables, X)
    step = 1e-2
    kernel = found.variables["head/kernel"]
    ends = [loss({**found.variables, "head/kernel": kernel + s}, X) for s in (step, -step)]
    close(gradients["head/kernel"].sum(), (ends[0] - ends[1]) / (2 * step), 1e-2)
    rows = jax.vmap(lambda row: found.apply(found.variables, row[None])[0][0])(X)
    close(rows, model(X))
    close(ipu.compile(lambda v, x: found.apply(v, x)[0])(found.variables, X), model(X))


def test_values_are_copies() -> None:
    model = functional()
    found = from_keras(model)
    before = np.asarray(found.variables["head/kernel"])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :2], verbose=0)
    np.testing.assert_array_equal(found.variables["head/kernel"], before)
    assert not np.array_equal(model.get_layer("head").kernel, before)


# --- parts and stages -----------------------------------------------------------------------------


def test_parts_are_the_calls_of_layers_in_order() -> None:
    parts = from_keras(functional()).parts
    assert named(parts) == ["shared", "encoder/dense_1", "encoder/drop", "shared", "norm", "head"]
    assert {part.stage for part in parts} == {None}
    plain = keras.Sequential(
        [keras.Input((3,)), layers.Dense(2, name="a"), layers.Flatten(name="b")]
    )
    assert named(from_keras(plain).parts) == ["a", "b"]


def test_parts_of_a_subclassed_model_have_the_stages_of_its_call() -> None:
    assert from_keras(staged()).parts == (
        Part("first", 0),
        Part("drop", 0),
        Part("block/dense", 1),
        Part("norm", 1),
        Part("last", 2),
    )


def test_parts_of_models_with_several_arguments_need_an_example() -> None:
    class Sum(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3, name="dense")

        def call(self, x: Any, y: Any) -> Any:
            return self.dense(x) + y

    model = Sum()
    model(X, X)
    assert named(from_keras(model, example_args=(X, X)).parts) == ["dense"]
    close(from_keras(model).apply(from_keras(model).variables, X, X)[0], model(X, X))


def test_names_of_layers_are_scopes() -> None:
    found = from_keras(functional())
    text = jax.jit(found.apply).lower(found.variables, X).as_text(debug_info=True)
    assert "encoder/dense_1" in text


def test_the_context_that_marks_layers_is_around_each_trace(monkeypatch: Any) -> None:
    def around(model: Any) -> Any:
        return jax.named_scope(marks.write_mark(marks.STAGE, str(len(model.layers))))

    monkeypatch.setattr(frontend, "_trace_contexts", [])
    frontend.add_trace_context(around)
    frontend.add_trace_context(around)
    assert len(frontend._trace_contexts) == 1
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    assert [part.stage for part in from_keras(model).parts] == [1]


@pytest.mark.parametrize("training", [False, True])
def test_stages_are_the_model(training: bool) -> None:
    found = from_keras(staged(), training=training)
    stages = found.stages(X)
    assert len(stages) == 3
    variables, state = found.split(found.variables)
    given: Any = [X]
    now: Any = state
    for stage in stages:
        given, now = stage(variables, now, *given)
    outputs, after = found.apply(found.variables, X)
    close(given, outputs)
    jax.tree.map(close, {**variables, **now}, after)


def test_stages_run_as_a_pipeline() -> None:
    keras.utils.set_random_seed(3)
    inside = [layers.Dense(4), layers.Dense(3)]

    class Pair(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inside = inside

        def call(self, x: Any) -> Any:
            for number, layer in enumerate(self.inside):
                with jax.named_scope(marks.write_mark(marks.STAGE, str(number))):
                    x = layer(x)
            return x

    model = Pair()
    model(X)
    found = from_keras(model)
    assert found.split(found.variables)[1] is None
    configure(2)
    batches = [X + i for i in range(4)]
    _, (outputs,) = run_pipeline(
        found.stages(X), 4, variables=found.variables, data=lambda: iter(batches)
    )
    close(outputs, np.stack([model(x) for x in batches]))


def test_a_key_comes_after_the_inputs_of_the_first_stage() -> None:
    found = from_keras(staged(), training=True)
    given, (variables, state) = (X, KEY), found.split(found.variables)
    for stage in found.stages(X, key=KEY):
        given, state = stage(variables, state, *given)
    close(given, found.apply(found.variables, X, key=KEY)[0])


# --- what cannot be -------------------------------------------------------------------------------


def test_what_is_no_model_of_keras() -> None:
    with pytest.raises(FrontendTypeError, match="must be a model of Keras"):
        from_keras(lambda x: x)
    model = keras.Sequential([layers.Dense(2)], name="bare")
    with pytest.raises(FrontendError, match="model 'bare' is not built") as caught:
        from_keras(model)
    assert "call it once on data" in caught.value.fix


def test_keras_on_another_backend(monkeypatch: Any) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(FrontendError, match="KERAS_BACKEND"):
        from_keras(functional())


def test_keras_that_is_not_installed(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keras", None)
    with pytest.raises(MissingExtraError, match=re.escape("ipujax[keras]")):
        from_keras(None)


def test_other_variables_than_the_model_has() -> None:
    found = from_keras(functional())
    with pytest.raises(FrontendError, match="'head/bias' is missing among the variables"):
        found.apply({n: v for n, v in found.variables.items() if n != "head/bias"}, X)
    with pytest.raises(FrontendError, match="'w' is none of the variables"):
        found.apply({**found.variables, "w": X}, X)


def test_a_model_without_stages() -> None:
    with pytest.raises(PipelineError, match="assign layers to the stages"):
        from_keras(functional()).stages(X)
