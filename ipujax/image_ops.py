"""Operations on images."""

from __future__ import annotations

from ipujax.operators import image as _image

__all__ = [
    "CHANNELS",
    "normalise_image",
]


def __dir__() -> list[str]:
    return __all__


CHANNELS = _image.CHANNELS
normalise_image = _image.normalise_image
