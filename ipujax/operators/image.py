"""Operations on images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import PyTree, check

CHANNELS = 3
_DTYPES = ("uint8", "float16", "float32")


@check.guard
def normalise_image(
    image: ArrayLike,
    channel_offsets: ArrayLike,
    channel_scales: ArrayLike,
    scale: object = 1,
    name: str | None = None,
) -> jax.Array:
    """Normalises images and gives them a fourth channel, of zeros (seed 001, 18.14.3).

    Each channel c becomes `(image[c] * scale - channel_offsets[c]) * channel_scales[c]`.

    Args:
      image: `[..., 3]`, uint8, float16 or float32.
      channel_offsets: `[3]`.
      channel_scales: `[3]`.
      scale: a scalar.
      name: a named scope for the operation.

    Returns:
      `[..., 4]`, of the dtype of the image; float16 for uint8. The other arguments are cast to
      it, and it is computed in (fact `image.dtype`).

    Raises:
      OperatorError: (a `ValueError`) for an image of another number of channels, and for other
        arguments of other shapes.
      ConfigTypeError: (a `TypeError`) for an image of another dtype, as in the original, and for
        arguments that are no arrays.
    """
    pixels = check.require_array(image, "the image of normalise_image")
    if pixels.dtype.name not in _DTYPES:
        raise check.type_error(
            f"normalise_image got an image of {pixels.dtype}", f"use one of {', '.join(_DTYPES)}"
        )
    if pixels.shape[-1:] != (CHANNELS,):
        raise check.value_error(
            f"normalise_image got an image of shape {list(pixels.shape)}, but expected {CHANNELS} "
            "channels",
            "give it 3 channels, as its last axis",
        )
    dtype = jnp.float16 if pixels.dtype == jnp.uint8 else pixels.dtype
    offsets = _check_parameter(channel_offsets, "channel_offsets", (CHANNELS,), dtype)
    scales = _check_parameter(channel_scales, "channel_scales", (CHANNELS,), dtype)
    factor = _check_parameter(scale, "scale", (), dtype)
    with check.operator_scope(name):
        normal = (pixels.astype(dtype) * factor - offsets) * scales
        fourth = [(0, 0, 0)] * (pixels.ndim - 1) + [(0, 1, 0)]
        return lax.pad(normal, np.zeros((), dtype), fourth)


def _check_parameter(
    values: PyTree, name: str, shape: tuple[int, ...], dtype: DTypeLike
) -> jax.Array:
    fitted = check.require_array(values, f"the {name} of normalise_image", dtype)
    if fitted.shape != shape:
        raise check.value_error(
            f"the {name} of normalise_image has shape {list(fitted.shape)}",
            f"give it the shape {list(shape)}",
        )
    return fitted
