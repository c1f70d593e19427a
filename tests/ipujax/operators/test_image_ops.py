"""Normalised images against the facts and NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.image_ops import normalise_image


@pytest.mark.fact("image.float32")
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_values(dtype: Any) -> None:
    images = np.stack([np.full((2, 3, 3), v, dtype) for v in range(3)])

    def fn(images: Any) -> Any:
        return normalise_image(images, np.array([1, 2, 3]), [4, 5, 6], scale=2)

    expected = [[-4, -10, -18, 0], [4, 0, -6, 0], [12, 10, 6, 0]]
    for run in (ipu.compile(fn), jax.jit(fn)):
        out = run(images)
        assert out.shape == (3, 2, 3, 4)
        for image, pixel in zip(out, expected, strict=True):
            np.testing.assert_array_equal(image, np.tile(pixel, (2, 3, 1)))


def test_values_of_bytes_do_not_wrap() -> None:
    out = normalise_image(np.full((1, 1, 1, 3), 250, np.uint8), [0, 1, 2], [1, 1, 2], scale=3)
    np.testing.assert_array_equal(out[0, 0, 0], [750, 749, 1496, 0])


def test_any_dimensions_in_front_of_the_channels() -> None:
    images = np.random.default_rng(0).normal(size=(2, 1, 2, 9, 3)).astype(np.float32)
    for lead in (images, images[0, 0, 0, 0], images[:0]):
        out = ipu.compile(lambda x: normalise_image(x, [1, 2, 3], [4, 5, 6]))(lead)
        np.testing.assert_allclose(out[..., :3], (lead - [1, 2, 3]) * [4, 5, 6], rtol=1e-5)
        np.testing.assert_array_equal(out[..., 3], np.zeros(lead.shape[:-1]))


@pytest.mark.fact("image.neg")
def test_negative_scales() -> None:
    out = normalise_image(
        np.ones((1, 1, 1, 3), np.float32), [3.82, -1.9999, 6000], [-1, 1.5, 6.3333], -3.283
    )
    np.testing.assert_allclose(out[0, 0, 0], [7.103, -1.92465, -38020.59, 0], rtol=1e-5)


@pytest.mark.fact("image.dtype")
@pytest.mark.parametrize(
    ("given", "expected"),
    [(np.uint8, np.float16), (np.float16, np.float16), (np.float32, np.float32)],
)
def test_types(given: Any, expected: Any) -> None:
    out = normalise_image(np.ones((1, 1, 1, 3), given), np.ones(3), np.ones(3, np.int32), 1.5)
    assert out.dtype == expected


def test_gradient_and_vmap() -> None:
    images = np.random.default_rng(0).normal(size=(2, 2, 2, 3)).astype(np.float32)
    offsets, scales = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)

    def loss(images: Any, offsets: Any, scales: Any) -> Any:
        return jnp.sum(normalise_image(images, offsets, scales, 2, name="normalise"))

    found = ipu.compile(jax.grad(loss, (0, 1, 2)))(images, offsets, scales)
    np.testing.assert_allclose(found[0], np.broadcast_to(2 * scales, images.shape))
    np.testing.assert_allclose(found[1], -8 * scales)
    np.testing.assert_allclose(found[2], (2 * images - offsets).sum((0, 1, 2)), rtol=1e-5)
    one_by_one = [normalise_image(image, offsets, scales) for image in images]
    mapped = jax.vmap(lambda image: normalise_image(image, offsets, scales))(images)
    np.testing.assert_allclose(mapped, jnp.stack(one_by_one))


def test_costs() -> None:
    def fn(image: Any) -> Any:
        return normalise_image(image, [1, 2, 3], [4, 5, 6])

    lowered = ipu.compile(fn).lower(np.ones((4, 32, 32, 3), np.float32))
    assert lowered.compile().report().default_share < 0.1


@pytest.mark.fact("image.bad_channels")
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (1, 1, 1, 4), (3, 1), ()])
def test_images_have_three_channels(shape: Any) -> None:
    with pytest.raises(OperatorError, match="expected 3 channels") as info:
        normalise_image(np.ones(shape, np.float32), np.ones(3), np.ones(3))
    assert isinstance(info.value, ValueError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: normalise_image(x, [1, 2], [1, 2, 3]), "channel_offsets.* has shape"),
        (lambda x: normalise_image(x, [1, 2, 3], 4.0), "channel_scales.* has shape"),
        (lambda x: normalise_image(x, [1, 2, 3], [1, 2, 3], scale=[1, 2]), "the scale of"),
    ],
)
def test_bad_operands(call: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        call(np.ones((1, 1, 1, 3), np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: normalise_image(x.astype(np.int32), [1, 2, 3], [1, 2, 3]), "image of int32"),
        (lambda x: normalise_image(None, [1, 2, 3], [1, 2, 3]), "the image of .* cannot be"),
        (lambda x: normalise_image(x, [1, [2], 3], [1, 2, 3]), "channel_offsets of .* cannot be"),
        (lambda x: normalise_image(x, [1, 2, 3], [1, 2, 3], None), "the scale of .* cannot be"),
        (lambda x: normalise_image(x, [1, 2, 3], [1, 2, 3], name=3), "name of an operator is 3"),
    ],
)
def test_bad_types(call: Any, message: str) -> None:
    with pytest.raises(ConfigTypeError, match=message) as info:
        call(np.ones((1, 1, 1, 3), np.float32))
    assert isinstance(info.value, TypeError)
    assert "test_image_ops.py:" in str(info.value)
