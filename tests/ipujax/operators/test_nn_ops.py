"""Activations and multi-convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.nn_ops import gelu, hard_sigmoid, multi_conv, swish
from ipujax.sharding import has_attr

X = jnp.asarray([-2, -0.5, 0, 0.5, 1, 3], jnp.float32)


@pytest.mark.fact("nn.gelu_tanh")
def test_gelu_by_tanh() -> None:
    wanted = [-0.04540231, -0.154286, 0, 0.345714, 0.841192, 2.996363]
    np.testing.assert_allclose(ipu.compile(gelu)(X), wanted, atol=1e-6)


@pytest.mark.fact("nn.gelu_erf")
def test_gelu_by_erf() -> None:
    wanted = [-0.04550026, -0.1542688, 0, 0.3457312, 0.8413447, 2.99595]
    got = ipu.compile(lambda x: gelu(x, approximate=False))(X)
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.fact("nn.swish")
def test_swish() -> None:
    x = jnp.asarray([-2, -0.5, 0, 0.5, 2], jnp.float32)
    y, pull = jax.vjp(swish, x)
    np.testing.assert_allclose(y, [-0.2384058, -0.1887703, 0, 0.3112297, 1.761594], atol=1e-6)
    slopes = [-0.09078425, 0.2600388, 0.5, 0.7399612, 1.090784]
    np.testing.assert_allclose(pull(jnp.ones(5))[0], slopes, atol=1e-6)


def test_hard_sigmoid() -> None:
    x = jnp.asarray([-9, -2.5, -1, 0, 1, 2.5, 9], jnp.float32)
    wanted = [0, 0, 0.3, 0.5, 0.7, 1, 1]
    np.testing.assert_allclose(ipu.compile(hard_sigmoid)(x), wanted, atol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_slope_of_hard_sigmoid_at_its_corners(dtype: Any) -> None:
    x = jnp.asarray([-jnp.inf, -9, -2.5, -1, 1, 2.5, 9, jnp.inf], dtype)
    slopes = ipu.compile(jax.grad(lambda x: hard_sigmoid(x).sum()))(x)
    np.testing.assert_allclose(slopes, [0, 0, 0.2, 0.2, 0.2, 0.2, 0, 0], rtol=1e-3)
    assert slopes.dtype == dtype
    np.testing.assert_array_equal(hard_sigmoid(jnp.asarray([-jnp.inf, jnp.inf], dtype)), [0, 1])
    assert jnp.isnan(hard_sigmoid(jnp.asarray(jnp.nan, dtype)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", [gelu, swish, hard_sigmoid])
def test_float16_stays_finite(function: Any) -> None:
    x = jnp.asarray([-1000, -40, -1, 0, 1, 40, 1000], jnp.float16)
    y, pull = jax.vjp(function, x)
    (slopes,) = pull(jnp.ones_like(y))
    wanted, wanted_pull = jax.vjp(function, x.astype(jnp.float32))
    assert (y.dtype, slopes.dtype) == (jnp.float16, jnp.float16)
    np.testing.assert_allclose(y, wanted, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(slopes, wanted_pull(jnp.ones_like(wanted))[0], atol=2e-3)


@pytest.mark.parametrize("function", [gelu, swish, hard_sigmoid])
def test_activations_have_names_and_take_floats(function: Any) -> None:
    jaxpr = jax.make_jaxpr(lambda x: function(x, name="mine"))(X)
    assert all("mine" in str(eqn.source_info.name_stack) for eqn in jaxpr.eqns)
    with pytest.raises(ValueError, match=f"the operand of {function.__name__} is int32"):
        function(jnp.arange(3))


def test_approximate_is_a_bool() -> None:
    with pytest.raises(TypeError, match="`approximate` of gelu is 1"):
        gelu(X, 1)  # pyright: ignore[reportArgumentType]


def separate(x: Any, y: Any, kernels: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return [
        jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        for image, kernel in zip((x, y), kernels, strict=True)
    ]


IMAGES = jax.random.normal(jax.random.key(0), (2, 1, 5, 5, 3))
KERNELS = [jax.random.normal(jax.random.key(n), (n, n, 3, 4)) for n in (2, 3)]


def loss_of(convs: Any) -> Any:
    return lambda kernels: sum((out**2).sum() for out in convs(*IMAGES, kernels))


@pytest.mark.sampled(2)
@pytest.mark.fact("nn.multi_conv_equal")
@pytest.mark.parametrize("options", [None, {}, {"perConvReservedTiles": "50", "cycleBackOff": 0.1}])
def test_multi_conv_computes_what_its_function_does(options: Any) -> None:
    together = multi_conv(options=options)(separate)
    for mine, theirs in zip(
        ipu.compile(together)(*IMAGES, KERNELS), separate(*IMAGES, KERNELS), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    got = ipu.compile(jax.grad(loss_of(together)))(KERNELS)
    for mine, theirs in zip(got, jax.grad(loss_of(separate))(KERNELS), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_options_go_along_with_convolutions_and_their_gradients() -> None:
    together = multi_conv(separate, {"planType": "serial"})
    jaxpr = jax.make_jaxpr(jax.grad(loss_of(together)))(KERNELS)
    convolutions = [e for e in jaxpr.eqns if e.primitive.name == "conv_general_dilated"]
    assert len(convolutions) == 4
    assert all(has_attr(eqn, "multi_conv") for eqn in convolutions)
    assert all(has_attr(eqn, "multi_conv.planType") for eqn in convolutions)
    assert together.__name__ == "separate"


@pytest.mark.parametrize("wrapped", [False, True])
def test_convolutions_are_independent_of_each_other(wrapped: bool) -> None:
    def one(image: Any, kernel: Any) -> Any:
        return separate(image, image, [kernel, kernel])[0]

    inner = jax.jit(jax.checkpoint(one)) if wrapped else one

    def chain(x: Any, y: Any) -> Any:
        del y
        return inner(jax.nn.relu(inner(x, KERNELS[0]))[..., :3], KERNELS[1])

    with pytest.raises(ValueError, match=r"`chain` a convolution depends on another: that of"):
        ipu.compile(multi_conv(chain))(*IMAGES)
    # What comes after one may still go along with the other, and into a second call.
    both = multi_conv(lambda x, y: [jax.nn.relu(inner(z, KERNELS[0])) for z in (x, y)])
    x, y = both(*IMAGES)
    assert both(x[..., :3], y[..., :3])[0].shape == x.shape


def test_loops_count_as_one_convolution() -> None:
    def looped(x: Any, after: bool) -> Any:
        first = inner_loop(x)
        return inner_loop(first) if after else (first, inner_loop(x))

    def inner_loop(x: Any) -> Any:
        kernel = jnp.ones((1, 1, 3, 3))
        body = lambda image, _: (separate(image, image, [kernel, kernel])[0], None)  # noqa: E731
        return jax.lax.scan(body, x, length=2)[0]

    multi_conv(lambda x: looped(x, after=False))(IMAGES[0])
    with pytest.raises(ValueError, match="a convolution depends on another"):
        multi_conv(lambda x: looped(x, after=True))(IMAGES[0])


def test_multi_conv_takes_what_its_function_closes_over() -> None:
    def loss(kernels: Any, images: Any) -> Any:
        together = multi_conv(lambda x, y: separate(x, y, kernels))
        return sum((out**2).sum() for out in jax.checkpoint(together)(*images))

    many = jnp.stack([IMAGES, IMAGES[::-1]])
    got = ipu.compile(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(KERNELS, many)
    for n, images in enumerate(many):
        wanted = jax.grad(lambda k, i=images: sum((o**2).sum() for o in separate(*i, k)))(KERNELS)
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine[n], theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.fact("nn.multi_conv_options_type")
@pytest.mark.parametrize("options", ["perConvReservedTiles", [("planType", "serial")], 3])
def test_options_are_a_dict(options: Any) -> None:
    with pytest.raises(TypeError, match="`options` of multi_conv is"):
        multi_conv(options=options)


@pytest.mark.fact("nn.multi_conv_options")
def test_unknown_options() -> None:
    with pytest.raises(ValueError, match="invalid_option 'invalidFlag'"):
        multi_conv(options={"invalidFlag": "yes"})
    with pytest.raises(ValueError, match="'planTyp'; did you mean 'planType'"):
        multi_conv(options={"planTyp": "serial"})
    with pytest.raises(ValueError, match=r"convolutions\.poplar_options"):
        multi_conv(options={"availableMemoryProportion": 0.3})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("planType", "both"),
        ("perConvReservedTiles", "-1"),
        ("perConvReservedTiles", 2.5),
        ("cycleBackOff", "much"),
        ("cycleBackOff", 2),
    ],
)
def test_options_have_values_that_poplar_takes(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"option '{option}' of multi_conv is {value!r}"):
        multi_conv(options={option: value})


def test_what_multi_conv_refuses() -> None:
    with pytest.raises(TypeError, match="`func` of multi_conv is 3"):
        multi_conv(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="`separate` was given keyword arguments \\(kernels\\)"):
        multi_conv(separate)(*IMAGES, kernels=KERNELS)
    with pytest.raises(ValueError, match="returned None, without an array"):
        multi_conv(lambda x: None)(X)
    with pytest.raises(TypeError, match="`separate` was given 'valid', of type str"):
        multi_conv(separate)(*IMAGES, "valid")
