"""Normalisations against NumPy, closed forms, and the facts."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import ipujax as ipu
from ipujax.all_to_all_op import all_gather
from ipujax.errors import CollectiveError, ConfigTypeError, OperatorError
from ipujax.normalization_ops import batch_norm, group_norm, instance_norm, layer_norm
from ipujax.pipelining_ops import OptimizerFunctionOutput
from ipujax.replication_ops import replication_index
from tests.ipujax.pipelining import run_pipeline

RNG = np.random.default_rng(0)


def configure(ipus: int = 1, *, stable: bool = False, group: int = 1) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.norms.use_stable_statistics = stable
    config.norms.experimental.distributed_batch_norm_replica_group_size = group
    config.configure_ipu_system()


def by_hand(x: Any, groups: int, *, strided: bool = True, epsilon: float = 1e-6) -> Any:
    """Group normalisation of `[batch, ..., channels]`, group by group, in float64."""
    x = np.asarray(x, np.float64)
    out, channels = np.empty_like(x), x.shape[-1]
    for example in range(len(x)):
        for group in range(groups):
            mine = [
                c
                for c in range(channels)
                if (c % groups if strided else c // (channels // groups)) == group
            ]
            part = x[example][..., mine]
            out[example][..., mine] = (part - part.mean()) / np.sqrt(part.var() + epsilon)
    return out


# --- group_norm -----------------------------------------------------------------------------------


@pytest.mark.fact("norms.strided_values")
@pytest.mark.parametrize(
    ("strided", "expected"),
    [
        (
            True,
            [
                [-1.341641, -1.341641, -0.4472136, -0.4472136],
                [0.4472136, 0.4472136, 1.341641, 1.341641],
            ],
        ),
        (
            False,
            [
                [-1.212678, -0.7276068, -1.212678, -0.7276068],
                [0.7276068, 1.212678, 0.7276068, 1.212678],
            ],
        ),
    ],
)
def test_values_of_both_groupings(strided: bool, expected: Any) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    norm = functools.partial(group_norm, strided_channel_grouping=strided)
    np.testing.assert_allclose(ipu.compile(norm)(x)[0], expected, atol=2e-6)
    np.testing.assert_allclose(jax.jit(norm)(x)[0], expected, atol=2e-6)


@pytest.mark.fact("norms.strided_values2")
def test_more_values_of_both_groupings() -> None:
    x = np.array([[[1, 2, 3, 4], [2, 9, -3, 0.5]]], np.float32)
    strided = [[0.1097642, -0.584317, 0.9878782, 0.03895447]]
    strided += [[0.5488212, 1.597133, -1.646464, -1.051771]]
    contiguous = [[-0.7808688, -0.4685213, 0.6941172, 1.064313]]
    contiguous += [[-0.4685213, 1.717911, -1.527058, -0.2313724]]
    np.testing.assert_allclose(group_norm(x, groups=2)[0], strided, rtol=2e-6)
    out = group_norm(x, groups=2, strided_channel_grouping=False)[0]
    np.testing.assert_allclose(out, contiguous, rtol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.fact("norms.strided")
@hypothesis.given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.booleans()
)
@hypothesis.settings(max_examples=3)
def test_groups_of_channels(
    batch: int, groups: int, size: int, spatial: int, strided: bool
) -> None:
    rng = np.random.default_rng(batch + 10 * groups + 100 * size)
    x = rng.normal(size=(batch, *(3, 2)[:spatial], groups * size)).astype(np.float32)
    expected = by_hand(x, groups, strided=strided)
    out = group_norm(x, groups, strided_channel_grouping=strided, epsilon=1e-6)
    # Groups of one or two nearby values are as inexact as the default, one-pass form.
    np.testing.assert_allclose(out, expected, atol=2e-2)
    first = group_norm(
        np.moveaxis(x, -1, 1), groups, channels_axis=1, strided_channel_grouping=strided
    )
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), out, atol=2e-2)


@pytest.mark.fact("norms.constant_input")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_constants_become_zeros(dtype: Any) -> None:
    out = ipu.compile(lambda x: group_norm(x, groups=5))(np.ones((10, 10, 10, 30), dtype))
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, np.zeros_like(out))


@pytest.mark.fact("norms.layer_instance")
def test_layer_and_instance_norm() -> None:
    x = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(layer_norm(x), group_norm(x, groups=1), atol=1e-6)
    np.testing.assert_allclose(layer_norm(x), by_hand(x, 1), atol=1e-5)
    np.testing.assert_allclose(instance_norm(x), group_norm(x, groups=6), atol=1e-6)
    np.testing.assert_allclose(instance_norm(x), by_hand(x, 6), atol=1e-5)


@pytest.mark.fact("norms.defaults")
def test_defaults_and_the_order_of_arguments() -> None:
    names = "channels_axis center scale epsilon param_initializers reuse variables_collections"
    names = f"{names} training trainable scope"
    signature = inspect.signature(group_norm).parameters
    given = f"inputs groups {names} strided_channel_grouping gamma beta"
    assert list(signature) == given.split()
    assert (signature["groups"].default, signature["channels_axis"].default) == (2, -1)
    assert signature["epsilon"].default == 1e-6
    assert signature["training"].default is signature["trainable"].default is True
    for norm in (layer_norm, instance_norm):
        assert list(inspect.signature(norm).parameters) == f"inputs {names} gamma beta".split()


@pytest.mark.parametrize("norm", [group_norm, layer_norm, instance_norm])
def test_parameters_that_are_reused_are_given_again(norm: Any) -> None:
    x = RNG.normal(size=(2, 4, 4)).astype(np.float32)
    given = {"gamma": np.array([1, 2, 3, 4], np.float32), "beta": np.ones(4, np.float32)}
    first = norm(x, scope="shared", reuse=False, **given)
    np.testing.assert_array_equal(norm(x, scope="shared", reuse=True, **given), first)
    plain = norm(x, center=False, scale=False)
    again = norm(x, scope="shared", reuse=True, center=False, scale=False)
    np.testing.assert_array_equal(again, plain)
    assert not np.array_equal(plain, first)


def test_scale_and_offset() -> None:
    x = RNG.normal(size=(2, 4, 3)).astype(np.float32)
    gamma, beta = np.array([1, 2, 3], np.float32), np.array([-1, 0, 5], np.float32)
    expected = by_hand(x, 3) * gamma + beta
    np.testing.assert_allclose(instance_norm(x, gamma=gamma, beta=beta), expected, atol=1e-5)
    first = instance_norm(np.moveaxis(x, -1, 1), channels_axis=1, gamma=gamma, beta=beta)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), expected, atol=1e-5)
    out = instance_norm(x, center=False, gamma=gamma, training=False)
    np.testing.assert_allclose(out, by_hand(x, 3) * gamma, atol=1e-5)
    rows = x.reshape(8, 3)
    expected = by_hand(rows, 1) * gamma + beta
    np.testing.assert_allclose(layer_norm(rows, gamma=gamma, beta=beta), expected, atol=1e-5)
    np.testing.assert_allclose(layer_norm(rows, beta=beta), by_hand(rows, 1) + beta, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("shape", "axis", "groups"),
    [
        ((10, 10, 10, 30), 3, 2),
        ((10, 10, 10, 30), -3, 2),
        ((10, 10, 30), 2, 2),
        ((10, 10, 30), -2, 2),
        ((10, 700), 1, 7),
        ((4, 4, 4, 10, 4), 1, 2),
        ((4, 16, 16, 8), 1, 4),
    ],
)
def test_every_group_has_mean_0_and_variance_1(shape: Any, axis: int, groups: int) -> None:
    x = (RNG.normal(size=shape) + 1).astype(np.float32)
    out = np.moveaxis(ipu.compile(lambda x: group_norm(x, groups, axis))(x), axis, -1)
    grouped = out.reshape(shape[0], -1, shape[axis] // groups, groups)
    np.testing.assert_allclose(grouped.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(grouped.var((1, 2)), 1, atol=1e-4)


def test_parameters_that_are_not_trainable() -> None:
    x, gamma = jnp.ones((2, 3)).at[0, 0].set(4), jnp.ones(3)

    def loss(gamma: Any, trainable: bool) -> Any:
        return jnp.sum(layer_norm(x, trainable=trainable, gamma=gamma, beta=gamma) ** 2)

    assert np.all(np.asarray(jax.grad(loss)(gamma, True)) != 0)
    np.testing.assert_array_equal(jax.grad(loss)(gamma, False), [0, 0, 0])


def plainly(x: Any, gamma: Any, beta: Any, *, groups: int, epsilon: float = 1e-6) -> Any:
    """Strided group normalisation that JAX differentiates by itself."""
    grouped = x.reshape(len(x), -1, x.shape[-1] // groups, groups)
    mean = grouped.mean((1, 2), keepdims=True)
    variance = ((grouped - mean) ** 2).mean((1, 2), keepdims=True)
    return ((grouped - mean) / jnp.sqrt(variance + epsilon)).reshape(x.shape) * gamma + beta


@pytest.mark.exhaustive
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(("shape", "groups"), [((2, 5, 4), 2), ((3, 4), 1)])
def test_gradients(stable: bool, shape: Any, groups: int) -> None:
    configure(stable=stable)
    x = RNG.normal(size=shape).astype(np.float32)
    weights = RNG.normal(size=x.shape).astype(np.float32)
    gamma, beta = RNG.normal(size=(2, 4)).astype(np.float32)

    def ours(*args: Any) -> Any:
        normal = group_norm(args[0], groups, gamma=args[1], beta=args[2])
        return jnp.sum(weights * jnp.sin(normal))

    def theirs(*args: Any) -> Any:
        return jnp.sum(weights * jnp.sin(plainly(*args, groups=groups)))

    for transform in (jax.grad, jax.jacfwd):
        found = ipu.compile(transform(ours, (0, 1, 2)))(x, gamma, beta)
        for mine, other in zip(found, transform(theirs, (0, 1, 2))(x, gamma, beta), strict=True):
            np.testing.assert_allclose(mine, other, atol=2e-5)


def test_second_derivatives() -> None:
    x = jnp.asarray(RNG.normal(size=(2, 6)), jnp.float32)
    weights = jnp.asarray(RNG.normal(size=(2, 6)), jnp.float32)
    mine = jax.jit(jax.hessian(lambda x: jnp.sum(weights * layer_norm(x))))(x)
    plain = jax.hessian(lambda x: jnp.sum(weights * plainly(x, 1.0, 0.0, groups=1)))
    other = jax.jit(plain)(x)
    np.testing.assert_allclose(mine, other, atol=2e-4)


def test_vmap() -> None:
    x = jnp.asarray(RNG.normal(size=(3, 2, 4, 6)), jnp.float32)
    one_by_one = jnp.stack([group_norm(each, 3) for each in x])
    np.testing.assert_allclose(jax.vmap(lambda x: group_norm(x, 3))(x), one_by_one, atol=1e-5)
    last = jax.vmap(lambda x: group_norm(x, 3), in_axes=3, out_axes=3)(jnp.moveaxis(x, 0, 3))
    np.testing.assert_allclose(jnp.moveaxis(last, 3, 0), one_by_one, atol=1e-5)


def test_extents_may_be_symbols() -> None:
    batch, rows = export.symbolic_shape("batch, rows")
    for shape in ((batch, 4), (batch, rows, 4)):
        for norm in (group_norm, layer_norm, instance_norm):
            traced = jax.eval_shape(
                lambda x, norm=norm: norm(x, gamma=jnp.ones(4)),
                jax.ShapeDtypeStruct(shape, jnp.float32),
            )
            assert traced.shape == shape


def test_halves_have_statistics_in_float32() -> None:
    x = (RNG.normal(size=(2, 64, 64)) * 100 + 50).astype(np.float16)  # squares overflow halves
    out = ipu.compile(layer_norm)(x)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, by_hand(x, 1), atol=4e-3)


def test_the_configuration_chooses_stable_statistics() -> None:
    x = (10_000 + RNG.normal(size=(1, 512, 2))).astype(np.float32)
    expected = by_hand(x, 1)
    shared = jax.jit(layer_norm)  # traced once for both configurations
    errors = []
    for stable in (True, False):
        configure(stable=stable)
        out = ipu.compile(lambda x: shared(x))(x)
        errors.append(float(np.max(np.abs(out - expected))))
    assert errors[0] < 2e-3
    assert errors[1] > 0.1
    assert np.all(np.isfinite(shared(x)))


# --- batch_norm -----------------------------------------------------------------------------------


def test_batch_norm_of_one_replica() -> None:
    x = (RNG.normal(size=(4, 3, 2)) * 2 + 1).astype(np.float32)
    gamma, beta = np.array([2, 3], np.float32), np.array([1, -1], np.float32)
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    expected = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    outputs, *moments = ipu.compile(lambda x: batch_norm(x, gamma=gamma, beta=beta))(x)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(moments, [mean, variance * 12 / 11], rtol=1e-5)
    first, *_ = batch_norm(np.moveaxis(x, -1, 1), gamma=gamma, beta=beta, channels_axis=1)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), expected, atol=1e-5)
    outputs, *same = batch_norm(
        x, gamma=gamma, beta=None, mean=mean, variance=variance, training=False, epsilon=0.1
    )
    np.testing.assert_allclose(outputs, (x - mean) / np.sqrt(variance + 0.1) * gamma, atol=1e-5)
    np.testing.assert_array_equal(same, [mean, variance])


def test_batch_norm_of_a_single_value_has_no_correction() -> None:
    outputs, mean, variance = batch_norm(np.full((1, 1), 3.0), gamma=None, beta=None)
    np.testing.assert_array_equal([outputs[0, 0], mean[0], variance[0]], [0, 3, 0])


def shared_statistics(rows: Any) -> Any:
    out = batch_norm(rows[replication_index()][:, None], gamma=None, beta=None)
    return [all_gather(leaf[..., 0], 4) for leaf in out]


@pytest.mark.fact("norms.dbn_g2")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_replicas_share_statistics(stable: bool, engine: str) -> None:
    configure(4, stable=stable, group=2)
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    outputs, mean, variance = ipu.compile(shared_statistics, engine=engine)(rows)
    expected = [-1.341104, -0.4470348, 0.4470348, 1.341104]
    np.testing.assert_allclose(outputs, np.reshape(expected * 2, (4, 2)), rtol=1e-5)
    np.testing.assert_allclose(mean, [1.5, 1.5, 5.5, 5.5])
    np.testing.assert_allclose(variance, [1.666667] * 4, rtol=1e-5)


def test_gradients_flow_through_shared_statistics() -> None:
    rows = RNG.normal(size=(4, 3, 2)).astype(np.float32)
    weights = RNG.normal(size=rows.shape).astype(np.float32)

    def loss(x: Any, weights: Any) -> Any:
        return jnp.sum(weights * batch_norm(x, gamma=None, beta=None)[0])

    def program(rows: Any) -> Any:
        index = replication_index()
        weight = jnp.asarray(weights)[index]
        return all_gather(jax.grad(loss)(rows[index], weight), 4)

    configure(4, group=2)
    found = ipu.compile(program)(rows).reshape(2, 6, 2)
    for pair in range(2):
        half = slice(2 * pair, 2 * pair + 2)
        whole = jax.grad(loss)(rows[half].reshape(6, 2), weights[half].reshape(6, 2))
        np.testing.assert_allclose(found[pair], whole, atol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("dtype", "atol"), [(np.float32, 1e-5), (np.float16, 4e-3)])
def test_shared_statistics_of_images(dtype: Any, atol: float) -> None:
    """Scale and offset of each replica have gradients of its own examples only."""
    images, weights = RNG.random((2, 4, 2, 3, 3, 3)).astype(dtype)
    gamma, beta = RNG.random((2, 3)).astype(dtype)

    def program(images: Any, weights: Any) -> Any:
        index = replication_index()

        def loss(x: Any, gamma: Any, beta: Any) -> Any:
            outputs, *moments = batch_norm(x, gamma=gamma, beta=beta)
            return jnp.sum(weights[index] * outputs, dtype=jnp.float32), (outputs, *moments)

        found = jax.grad(loss, (0, 1, 2), has_aux=True)(images[index], gamma, beta)
        return [all_gather(leaf, 4) for leaf in jax.tree.leaves(found)]

    configure(4, group=2)
    names = ("dx", "dgamma", "dbeta", "outputs", "mean", "variance")
    found = dict(zip(names, ipu.compile(program)(images, weights), strict=True))
    for first in (0, 2):
        x, g = (a[first : first + 2].astype(np.float64) for a in (images, weights))
        axes = (0, 1, 2, 3)
        mean, deviation = x.mean(axes), np.sqrt(x.var(axes) + 1e-3)
        normal = (x - mean) / deviation
        across = g.mean(axes) + normal * (g * normal).mean(axes)
        expected = {
            "dx": gamma * (g - across) / deviation,
            "dgamma": (g * normal).sum((1, 2, 3)),
            "dbeta": g.sum((1, 2, 3)),
            "outputs": normal * gamma + beta,
            "mean": np.broadcast_to(mean, (2, 3)),
            "variance": np.broadcast_to(x.var(axes) * 36 / 35, (2, 3)),
        }
        for name, values in expected.items():
            mine = np.asarray(found[name][first : first + 2], np.float64)
            np.testing.assert_allclose(mine, values, rtol=atol, atol=atol, err_msg=name)


def test_groups_of_replicas_must_divide_them() -> None:
    configure(4, group=3)
    x = np.ones((2, 2), np.float32)
    with pytest.raises(CollectiveError, match=r"group_size is 3.*replicas, 4") as info:
        ipu.compile(lambda x: batch_norm(x, gamma=None, beta=None))(x)
    assert "test_normalization_ops.py" in str(info.value)
    ipu.compile(group_norm)(x)  # its statistics are not shared


# --- where it runs --------------------------------------------------------------------------------


def test_sharded() -> None:
    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x = group_norm(x)
        with ipu.scopes.ipu_shard(1):
            return layer_norm(x * 2)

    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    configure(2)
    np.testing.assert_allclose(ipu.compile(model)(x), jax.jit(model)(x), atol=1e-5)


def test_pipelined() -> None:
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    variables = {"gamma": jnp.ones(4), "scale": jnp.full(4, 0.5)}

    def first(variables: Any, x: Any) -> Any:
        return layer_norm(x, gamma=variables["gamma"])

    def second(variables: Any, x: Any) -> Any:
        return jnp.sum(group_norm(x * variables["scale"], epsilon=0.1) ** 3)

    def optimizer(loss: Any) -> Any:
        import optax

        return OptimizerFunctionOutput(optax.sgd(0.1), loss)

    configure(2)
    (trained, _), _ = run_pipeline(
        [first, second],
        4,
        variables=variables,
        data=lambda: iter([x] * 4),
        optimizer_function=optimizer,
        device_mapping=[0, 1],
    )
    grads = jax.grad(lambda v: 4 * second(v, first(v, x)))(variables)
    for name, value in variables.items():
        np.testing.assert_allclose(trained[name], value - 0.1 * grads[name], atol=1e-4)


@pytest.mark.parametrize("stable", [False, True])
def test_costs(stable: bool) -> None:
    configure(stable=stable)
    x, gamma = np.ones((4, 16, 16, 32), np.float32), np.ones(32, np.float32)

    def loss(x: Any, gamma: Any) -> Any:
        return jnp.sum(group_norm(x, 4, gamma=gamma, beta=gamma))

    for fn in (loss, jax.grad(loss, (0, 1))):
        report = ipu.compile(fn).lower(x, gamma).compile().report()
        assert report.cycles > 0
        assert report.default_share < 0.1


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.fact("norms.err_commensurate")
@pytest.mark.parametrize("groups", [3, 0, -2, 8])
def test_groups_must_divide_the_channels(groups: int) -> None:
    with pytest.raises(OperatorError, match="not commensurate with 4 channels") as info:
        group_norm(np.ones((2, 4), np.float32), groups=groups)
    assert isinstance(info.value, ValueError)


@pytest.mark.fact("norms.err_format")
@pytest.mark.parametrize("axis", [2, 0, 4, -2, -5])
def test_channels_are_axis_1_or_the_last(axis: int) -> None:
    message = r"only axis 1 and the last axis are supported\n.*test_normalization_ops"
    with pytest.raises(OperatorError, match=message):
        layer_norm(np.ones((2, 2, 2, 2), np.float32), channels_axis=axis)


X = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_norm(np.ones(4, np.float32)), "at least two axes"),
        (lambda: group_norm(np.ones((2, 4), np.int32)), "inputs of group_norm is int32"),
        (lambda: layer_norm(X, gamma=np.ones(3)), r"give one value for each channel, \[4\]"),
        (lambda: layer_norm(X, beta=np.ones((1, 4))), "the beta of layer_norm has shape"),
        (lambda: layer_norm(X, center=False, beta=np.ones(4)), "center=False switches off"),
        (lambda: layer_norm(X, scale=False, gamma=np.ones(4)), "scale=False switches off"),
        (lambda: layer_norm(X, reuse=True), "without a scope"),
        (lambda: instance_norm(X, reuse=True, scope="a", gamma=np.ones(4)), "scope 'a'.*no vari"),
        (lambda: layer_norm(X, epsilon=-1e-3), "epsilon of layer_norm is -0.001, but must be fin"),
        (lambda: group_norm(X, epsilon=np.nan), "finite and not negative"),
        (lambda: batch_norm(X, gamma=None, beta=None, epsilon=np.inf), "finite and not negative"),
        (lambda: batch_norm(X, gamma=None, beta=None, mean=np.ones(4)), "for training"),
        (
            lambda: batch_norm(X, gamma=None, beta=None, mean=np.ones(4), training=False),
            "needs a mean and a variance",
        ),
    ],
)
def test_bad_values(call: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        call()


@pytest.mark.parametrize(
    "arguments",
    [
        {"param_initializers": {}},
        {"reuse": 1},
        {"variables_collections": []},
        {"center": 1},
        {"training": None},
        {"trainable": "yes"},
        {"channels_axis": 1.0},
        {"scope": 3},
        {"epsilon": "small"},
        {"epsilon": None},
        {"epsilon": np.ones((3, 1, 1))},
    ],
)
def test_bad_types(arguments: Any) -> None:
    for norm in (group_norm, layer_norm, instance_norm):
        with pytest.raises(ConfigTypeError, match=next(iter(arguments))):
            norm(X, **arguments)
