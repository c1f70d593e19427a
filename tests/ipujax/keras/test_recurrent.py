"""The layers LSTM and GRU: against Keras's own, their states, dropout, and what they refuse."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402

BATCH, STEPS, INPUTS, UNITS = 2, 4, 3, 5
RNG = np.random.default_rng(0)

KINDS = {"LSTM": {}, "GRU before": {"reset_after": False}, "GRU after": {"reset_after": True}}
of_kinds = pytest.mark.parametrize("kind", KINDS)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


X = values(BATCH, STEPS, INPUTS)


def pair(kind: str, **options: Any) -> tuple[Any, Any]:
    """Our layer and that of Keras, with the same weights."""
    name = kind.split()[0]
    # Keras takes `dropout` and the like, and no `time_major`.
    theirs = getattr(keras.layers, name)(UNITS, **options, **KINDS[kind])
    ours = getattr(layers, name)(UNITS, **options, **KINDS[kind])
    for layer in (ours, theirs):
        layer.build(X.shape)
    return ours, theirs


def alike(ours: Any, theirs: Any) -> None:
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5),
        list(ours) if isinstance(ours, tuple | list) else ours,
        list(theirs) if isinstance(theirs, tuple | list) else theirs,
    )


def states(kind: str) -> list[np.ndarray[Any, Any]]:
    return [values(BATCH, UNITS) for _ in range(2 if kind == "LSTM" else 1)]


@pytest.mark.exhaustive
@pytest.mark.fact("rnn.keras_weights")
@of_kinds
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("state", [False, True])
def test_weights_go_from_keras_to_us(kind, sequences, state):
    ours, theirs = pair(kind, return_sequences=sequences, return_state=state)
    theirs.set_weights([values(*weight.shape) for weight in theirs.get_weights()])
    assert [w.shape for w in ours.get_weights()] == [w.shape for w in theirs.get_weights()]
    ours.set_weights(theirs.get_weights())
    alike(ours(X, training=True), theirs(X, training=True))
    first = states(kind)
    alike(ours(X, initial_state=first), theirs(X, initial_state=first))


@pytest.mark.sampled(1)
@of_kinds
def test_initial_weights_are_drawn_as_by_keras(kind):
    def seeded() -> dict[str, Any]:
        names = ("GlorotUniform", "Orthogonal", "RandomNormal")
        keys = ("kernel_initializer", "recurrent_initializer", "bias_initializer")
        return {
            key: getattr(keras.initializers, name)(seed=i)
            for i, (key, name) in enumerate(zip(keys, names, strict=True))
        }

    name = kind.split()[0]
    extra = KINDS[kind] | ({"unit_forget_bias": False} if name == "LSTM" else {})
    ours = getattr(layers, name)(UNITS, **seeded(), **extra)
    theirs = getattr(keras.layers, name)(UNITS, **seeded(), **extra)
    ours.build(X.shape)
    theirs.build(X.shape)
    alike(ours.get_weights(), theirs.get_weights())
    assert [w.name for w in ours.weights] == ["kernel", "recurrent_kernel", "biases"]


@pytest.mark.exhaustive
@of_kinds
def test_gradients_are_those_of_keras(kind):
    ours, theirs = pair(kind)
    weights = [values(*weight.shape) for weight in theirs.get_weights()]
    frozen = [v.value for v in theirs.non_trainable_variables]

    def loss(layer: Any, state: Any, training: bool) -> Any:
        def total(weights: Any, x: Any) -> Any:
            return (layer.stateless_call(weights, state, x, training=training)[0] ** 2).sum()

        return jax.grad(total, argnums=(0, 1))(weights, X)

    alike(loss(ours, [], True), loss(theirs, frozen, True))
    alike(loss(ours, [], False), loss(theirs, frozen, False))


@pytest.mark.fact("rnn.keras_lstm_values")
@pytest.mark.parametrize(
    ("forget", "expected"),
    [
        (False, [0.695403, 0.7209112, 0.7448665, 0.7592565]),
        (True, [0.7090706, 0.7402668, 0.7633953, 0.7747444]),
    ],
)
def test_the_numbers_of_the_original(forget, expected):
    constant = keras.initializers.Constant
    layer = layers.LSTM(
        5,
        kernel_initializer=constant(0.1),
        recurrent_initializer=constant(0.2),
        bias_initializer=constant(0.3),
        unit_forget_bias=forget,
        return_sequences=True,
    )
    x = np.full((1, 4, 3), 0.7, np.float32)
    h, c = np.full((1, 5), 0.8, np.float32), np.full((1, 5), 0.9, np.float32)
    for first in ([h, c], (h, c), ipu.rnn_ops.LSTMStateTuple(c=c, h=h)):
        outputs = layer(x, initial_state=first)
        np.testing.assert_allclose(outputs, np.tile(np.c_[expected], 5)[None], rtol=1e-5)


@pytest.mark.fact("rnn.keras_forget_bias")
def test_the_forget_gate_starts_with_one():
    layer = layers.LSTM(2, bias_initializer=keras.initializers.Constant(0.3))
    layer.build(X.shape)
    expected = np.array([0.3, 0.3, 1, 1, 0.3, 0.3, 0.3, 0.3], np.float32)
    np.testing.assert_array_equal(layer.biases, expected)


@pytest.mark.fact("rnn.keras_alias")
def test_aliases():
    assert layers.LSTM is layers.PopnnLSTM
    assert layers.GRU is layers.PopnnGRU
    assert isinstance(layers.LSTM, type)


@of_kinds
def test_time_major(kind):
    ours, _ = pair(kind, return_sequences=True, return_state=True)
    other = type(ours).from_config(ours.get_config() | {"time_major": True})
    x = np.swapaxes(X, 0, 1)
    other.build(x.shape)
    other.set_weights(ours.get_weights())
    outputs, *last = ours(X)
    turned, *same = other(x)
    alike(np.swapaxes(turned, 0, 1), outputs)
    alike(last, same)
    assert other.compute_output_shape((4, 2, 3))[0] == (4, 2, 5)


@of_kinds
def test_a_stateful_layer_goes_on_from_its_last_state(kind):
    ours, _ = pair(kind, stateful=True)
    batches = [values(BATCH, STEPS, INPUTS) for _ in range(3)]
    longer = type(ours).from_config(ours.get_config() | {"stateful": False})
    longer.build(X.shape)
    longer.set_weights(ours.get_weights()[:3])
    for number, batch in enumerate(batches, 1):
        alike(ours(batch), longer(np.concatenate(batches[:number], axis=1)))
    ours.reset_state()
    alike(ours(batches[0]), longer(batches[0]))
    first = states(kind)
    alike(ours(batches[0], initial_state=first), longer(batches[0], initial_state=first))


@pytest.mark.sampled(1)
@of_kinds
def test_dropout_has_one_mask_for_all_steps(kind):
    def layer(**options: Any) -> Any:
        made = type(pair(kind)[0])(
            UNITS, kernel_initializer="ones", recurrent_initializer="zeros", activation=None,
            recurrent_activation=None, return_sequences=True, **options, **KINDS[kind],
        )  # fmt: skip
        made.build(X.shape)
        return made

    ones = np.ones((BATCH, STEPS, INPUTS), np.float32)
    dropping = layer(dropout=0.5, dropout_seed=[1, 2])
    results = [np.asarray(dropping(ones, training=True)) for _ in range(8)]
    equal = layer(dropout=0.5, dropout_seed=[1, 2])
    np.testing.assert_array_equal(results[0], equal(ones, training=True))
    assert len({result.tobytes() for result in results}) > 1
    # Whatever is dropped, each step's inputs are one multiple of the others' in each example.
    plain = layer()
    possible = [np.asarray(plain(ones * (2 * kept / INPUTS))) for kept in range(INPUTS + 1)]
    for result in results:
        for example in range(BATCH):
            assert any(np.allclose(result[example], p[example], rtol=1e-3) for p in possible)
    alike(dropping(ones, training=False), plain(ones))
    alike(dropping(ones), plain(ones))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("activation", ["relu", "softmax", "sigmoid", "tanh", None])
def test_activations_are_those_of_keras(activation):
    recurrent = "softmax" if activation == "softmax" else "sigmoid"
    for kind in ("LSTM", "GRU after"):
        options = {"activation": activation, "recurrent_activation": recurrent}
        ours, theirs = pair(kind, **options)
        ours.set_weights(theirs.get_weights())
        alike(ours(X), theirs(X))
        again, _ = pair(kind, activation=theirs.activation)
        assert again.activation == (activation or "linear")


def test_the_hard_sigmoid_is_the_originals():
    layer = layers.GRU(1, recurrent_activation="hard_sigmoid", use_bias=False)
    layer.build((1, 1, 1))
    layer.set_weights([np.array([[1, 0, 1]], np.float32), np.zeros((1, 3), np.float32)])
    gate = 0.2 * 2 + 0.5
    expected = (1 - gate) * np.tanh(2)
    np.testing.assert_allclose(layer(np.full((1, 1, 1), 2, np.float32)), [[expected]], rtol=1e-5)


@pytest.mark.sampled(2)
@of_kinds
def test_without_biases(kind):
    ours, theirs = pair(kind, use_bias=False)
    assert len(ours.weights) == 2
    ours.set_weights(theirs.get_weights())
    alike(ours(X), theirs(X))


def test_a_seed_is_for_initializers_given_by_name():
    def kernels(seed: int, **options: Any) -> Any:
        layer = layers.GRU(2, seed=seed, **options)
        layer.build(X.shape)
        return layer.get_weights()[:2]

    alike(kernels(1), kernels(1))
    assert not np.allclose(kernels(1)[0], kernels(2)[0])
    given = keras.initializers.RandomUniform(seed=7)
    alike(kernels(1, kernel_initializer=given)[0], kernels(2, kernel_initializer=given)[0])
    alike(kernels(1, kernel_initializer=None)[0], kernels(1)[0])


@of_kinds
def test_halves(kind):
    ours, _ = pair(kind)
    halves = type(ours).from_config(ours.get_config() | {"dtype": "float16"})
    result = halves(X)
    assert {v.dtype for v in halves.weights} == {"float16"}
    ours.set_weights([w.astype(np.float32) for w in halves.get_weights()])
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, ours(X), atol=5e-3)


def test_shapes_of_states():
    assert layers.LSTM(5).state_shape(2) == ([2, 5], [2, 5])
    assert layers.GRU(5).state_shape(2) == [2, 5]


UNSUPPORTED = {
    "kernel_regularizer": "l2",
    "recurrent_regularizer": "l2",
    "bias_regularizer": "l2",
    "activity_regularizer": "l2",
    "kernel_constraint": "non_neg",
    "recurrent_constraint": "non_neg",
    "bias_constraint": "non_neg",
    "recurrent_dropout": 0.5,
    "implementation": 2,
    "go_backwards": True,
    "unroll": True,
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_arguments_that_the_original_did_not_support_are_refused(name):
    for kind in (layers.LSTM, layers.GRU):
        with pytest.raises(OperatorError, match=rf"the {name} of Popnn{kind.__name__[5:]} is"):
            kind(2, **{name: UNSUPPORTED[name]})


def test_arguments_that_cannot_be_are_refused():
    with pytest.raises(OperatorError, match="the units of"):
        layers.LSTM(0)
    with pytest.raises(OperatorError, match="activation is 'gelu'"):
        layers.LSTM(2, activation="gelu")
    with pytest.raises(OperatorError, match="recurrent_activation is 'relu'"):
        layers.GRU(2, recurrent_activation="relu")
    with pytest.raises(OperatorError, match="partials_dtype"):
        layers.GRU(2, partials_dtype="int8")
    with pytest.raises(OperatorError, match="the rate of dropout"):
        layers.GRU(2, dropout=1)
    with pytest.raises(ConfigTypeError, match="the stateful of"):
        layers.GRU(2, stateful=1)


@pytest.mark.fact("rnn.dtype")
def test_other_dtypes_are_refused():
    for dtype in ("bfloat16", "float64", "mixed_bfloat16"):
        with pytest.raises(OperatorError, match=r"use jnp\.float16 or jnp\.float32"):
            layers.LSTM(2, dtype=dtype)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(OperatorError, match="stateful, and was given batches of unknown size"):
        layers.LSTM(2, stateful=True)(keras.Input((3, 4)))
    with pytest.raises(OperatorError, match="input_size must be known"):
        layers.LSTM(2)(keras.Input((3, None)))
    with pytest.raises(OperatorError, match="has 1 parts"):
        layers.LSTM(2)(X, initial_state=[np.zeros((2, 2), np.float32)])
    with pytest.raises(OperatorError, match=r"initial_state of .* has shape"):
        layers.GRU(2)(X, initial_state=np.zeros((3, 2), np.float32))


def test_masks_are_refused():
    embedding = keras.layers.Embedding(4, 3, mask_zero=True)
    with pytest.raises(OperatorError, match="was given inputs with a mask"):
        keras.Sequential([keras.Input((3,)), embedding, layers.GRU(2)])
    with pytest.raises(OperatorError, match="was given inputs with a mask"):
        layers.LSTM(2)(X, mask=np.ones((2, 4), bool))
