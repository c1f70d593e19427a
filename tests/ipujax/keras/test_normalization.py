"""The normalising layers: numbers, variables, axes, types, and what they refuse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402

RNG = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(1, 2, shape).astype(np.float32)


def grouped(x: Any, groups: int, axis: int, strided: bool) -> np.ndarray[Any, Any]:
    """What group normalisation is, in NumPy, in float64."""
    x = np.moveaxis(np.asarray(x, np.float64), axis, 1)
    channels = np.arange(x.shape[1])
    group = channels % groups if strided else channels // (x.shape[1] // groups)
    normal = np.empty_like(x)
    for number in range(groups):
        part = x[:, group == number]
        axes = tuple(range(1, part.ndim))
        mean, variance = part.mean(axes, keepdims=True), part.var(axes, keepdims=True)
        normal[:, group == number] = (part - mean) / np.sqrt(variance + 1e-3)
    return np.moveaxis(normal, 1, axis)


SHAPES = [
    ((3, 4, 5, 6), 3),
    ((3, 4, 5, 6), -1),
    ((3, 6, 5, 4), 1),
    ((3, 6, 5), -2),
    ((3, 5, 6), 2),
    ((4, 12), 1),
    ((2, 4, 3, 2, 3), 1),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_groups(shape, axis, strided):
    x = values(*shape)
    layer = layers.GroupNormalization(channels_axis=axis, strided_channel_grouping=strided)
    np.testing.assert_allclose(layer(x, training=True), grouped(x, 2, axis, strided), atol=1e-4)
    np.testing.assert_array_equal(layer(x, training=True), layer(x, training=False))


@pytest.mark.fact("norms.layer_instance")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:5])
def test_instances(shape, axis):
    x = values(*shape)
    expected = grouped(x, shape[axis], axis, True)
    result = layers.InstanceNormalization(channels_axis=axis)(x)
    np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.fact("norms.layer_instance")
def test_a_layer_over_all_axes_is_one_group():
    x = values(3, 4, 5, 6)
    result = layers.LayerNormalization(axis=[1, 2, 3])(x)
    np.testing.assert_allclose(result, grouped(x, 1, 3, True), atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("axis", [-1, 2, [2], (1, 2), [-2, -1], [1, 3], [3, 1], [0, 2]])
def test_a_layer_normalises_as_that_of_keras(axis):
    x = values(2, 3, 4, 5)
    ours = layers.LayerNormalization(axis=axis)
    theirs = keras.layers.LayerNormalization(axis=axis)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-3, atol=1e-4)
    assert ours.gamma.shape == (np.prod(theirs.gamma.shape),)


def test_gamma_and_beta_act_on_channels():
    x, gamma, beta = values(3, 4, 6), values(6), values(6)
    layer = layers.GroupNormalization(
        beta_initializer=keras.initializers.Constant(beta),
        gamma_initializer=keras.initializers.Constant(gamma),
    )
    np.testing.assert_allclose(layer(x), grouped(x, 2, -1, True) * gamma + beta, atol=1e-3)
    assert [(v.name, v.shape) for v in layer.variables] == [("gamma", (6,)), ("beta", (6,))]


def test_gamma_and_beta_of_a_layer_act_on_elements():
    x, gamma, beta = values(3, 4, 5), values(20), values(20)
    layer = layers.LayerNormalization(axis=[1, 2])
    layer.build(x.shape)
    layer.set_weights([gamma, beta])
    expected = grouped(x, 1, 2, True) * gamma.reshape(4, 5) + beta.reshape(4, 5)
    np.testing.assert_allclose(layer(x), expected, atol=1e-3)


def test_variables_are_left_out():
    x = values(3, 4)
    for kind in (layers.GroupNormalization, layers.InstanceNormalization):
        assert not kind(center=False, scale=False)(x).sum() > 1e-2
    layer = layers.LayerNormalization(center=False)
    layer.build(x.shape)
    assert [v.name for v in layer.variables] == ["gamma"]
    assert not layers.LayerNormalization(trainable=False).trainable


@pytest.mark.fact("norms.defaults")
def test_defaults():
    group = layers.GroupNormalization()
    assert (group.groups, group.channels_axis, group.epsilon) == (2, -1, 1e-3)
    assert layers.InstanceNormalization().epsilon == 1e-3
    assert layers.LayerNormalization().epsilon == 1e-3


@pytest.mark.fact("norms.strided")
def test_the_numbers_of_the_original():
    x = np.array([[[1, 2, 3, 4], [2, 9, -3, 0.5]]], np.float32)
    strided = [[0.1097642, -0.584317, 0.9878782, 0.03895447]]
    strided += [[0.5488212, 1.597133, -1.646464, -1.051771]]
    layer = layers.GroupNormalization(epsilon=1e-6)
    np.testing.assert_allclose(layer(x)[0], strided, rtol=1e-4)


@pytest.mark.fact("norms.constant_input")
def test_constant_inputs_give_zeros():
    x = np.ones((2, 3, 3, 30), np.float32)
    np.testing.assert_allclose(layers.GroupNormalization(groups=5)(x), 0, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [jnp.float16, "float16", "mixed_float16", None])
@pytest.mark.parametrize(
    "kind", [layers.GroupNormalization, layers.InstanceNormalization, layers.LayerNormalization]
)
def test_dtypes(kind, dtype):
    layer = kind(dtype=dtype)
    result = layer(values(2, 3, 4))
    of_variables = "float32" if dtype in (None, "mixed_float16") else "float16"
    assert {v.dtype for v in layer.variables} == {of_variables}
    assert result.dtype == ("float32" if dtype is None else "float16")
    assert {v.dtype for v in kind().variables} <= {"float32"}


def test_gradients():
    x = values(3, 4, 6)
    layer = layers.GroupNormalization()
    layer.build(x.shape)

    def ours(parameters: Any) -> Any:
        return (layer.stateless_call(parameters, [], x)[0] ** 3).sum()

    def operator(parameters: Any) -> Any:
        gamma, beta = parameters
        norm = ipu.normalization_ops.group_norm(x, epsilon=1e-3, gamma=gamma, beta=beta)
        return (norm**3).sum()

    parameters = [jnp.asarray(values(6)), jnp.asarray(values(6))]
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4),
        jax.grad(ours)(parameters),
        jax.grad(operator)(parameters),
    )


@pytest.mark.fact("norms.err_commensurate")
def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(OperatorError, match="not commensurate with 4 channels"):
        layers.GroupNormalization(groups=3)(values(2, 4))
    with pytest.raises(OperatorError, match="not commensurate with 4 channels"):
        keras.Sequential([keras.Input((4,)), layers.GroupNormalization(groups=3)])


@pytest.mark.fact("norms.err_format")
def test_other_channels_axes_are_refused():
    with pytest.raises(OperatorError, match="only axis 1 and the last axis are supported"):
        layers.GroupNormalization(channels_axis=2)(values(2, 4, 4, 4))
    with pytest.raises(OperatorError, match=r"axis \[4\] of inputs with 4 axes"):
        layers.InstanceNormalization(channels_axis=4)(values(2, 4, 4, 4))


@pytest.mark.fact("norms.err_unknown")
def test_unknown_extents_are_refused():
    with pytest.raises(OperatorError, match="unknown along the axis"):
        layers.GroupNormalization()(keras.Input((2, None)))
    with pytest.raises(OperatorError, match="unknown along the axis"):
        layers.LayerNormalization(axis=[1, 2])(keras.Input((None, 2)))


def test_axes_that_cannot_be_are_refused():
    for axis in ([2, -1], 3, -4):
        with pytest.raises(OperatorError, match="give axes from -3 to 2, each once"):
            layers.LayerNormalization(axis=axis)(values(2, 4, 4))
    with pytest.raises(ConfigTypeError, match="the axis of"):
        layers.LayerNormalization(axis="last")
    with pytest.raises(OperatorError, match="the gamma_regularizer of LayerNormalization"):
        layers.LayerNormalization(gamma_regularizer="l2")


def test_masks_pass():
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            keras.layers.Embedding(4, 5, mask_zero=True),
            layers.LayerNormalization(),
            layers.Dropout(0.5),
            keras.layers.LSTM(2),
        ]
    )
    padded, short = np.array([[1, 2, 0]]), np.array([[1, 2]])
    x = model.layers[0](short)
    expected = model.layers[3](model.layers[1](x))
    np.testing.assert_allclose(model(padded), expected, atol=1e-6)
