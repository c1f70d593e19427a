"""What a checkpoint says of itself, as a text beside its arrays."""

from __future__ import annotations

import dataclasses as dc
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checkpoints.leaves import Leaf
from ipujax.checkpoints.position import Position
from ipujax.host import json_text
from lowering import is_number

_FORMAT, _VERSION = "ipujax checkpoint", 1
_MOST_AXES, _MOST_ELEMENTS = 64, 2**56


class ForeignError(Exception):
    """A file that holds no checkpoint of ours; the message goes behind its name."""


@dc.dataclass(frozen=True)
class Contents:
    """What a checkpoint holds, without the numbers.

    Attributes:
      leaves: in the order of the tree.
      position: of the data set, if it is to go on from there.
    """

    leaves: tuple[Leaf, ...]
    position: Position | None = None


def to_text(contents: Contents) -> str:
    """JSON, readable and complete."""
    position = contents.position
    return json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "position": None if position is None else position.to_json(),
            "leaves": [dc.asdict(leaf) for leaf in contents.leaves],
        },
        indent=1,
    )


def from_text(text: bytes) -> Contents:
    """The contents that a text describes.

    Raises:
      ForeignError: a text of others, or of a version to come.
    """
    try:
        found = json_text.parse(text)
        if found["format"] != _FORMAT:
            raise ForeignError("is no checkpoint of ipujax")
        if found["version"] != _VERSION:
            raise ForeignError(f"has version {found['version']}, and only {_VERSION} is known here")
        position = found["position"]
        leaves = tuple(_leaf(**leaf) for leaf in found["leaves"])
        if len({leaf.name for leaf in leaves}) < len(leaves):
            raise ValueError("two leaves have one name")
        return Contents(leaves, None if position is None else Position.from_json(position))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ForeignError(f"is no checkpoint of ipujax ({error!r:.400})") from error


def _leaf(shape: Any, raw_shape: Any, name: Any, dtype: Any, raw_dtype: Any, impl: Any) -> Leaf:
    """A leaf that is like its array in the file.

    Raises:
      ValueError, TypeError: a leaf that no `Leaf` of an array is.
    """
    leaf = Leaf(_text(name), _text(dtype), _shape(shape), _text(raw_dtype), _shape(raw_shape), impl)
    raw = _dtype(leaf.raw_dtype)
    if impl is not None:
        key = jax.eval_shape(lambda: jax.random.key(0, impl=_text(impl)))
        bits = jax.eval_shape(jax.random.key_data, key)
        like = (str(key.dtype), bits.dtype, (*leaf.shape, *bits.shape))
        is_right = like == (leaf.dtype, raw, leaf.raw_shape)
    else:
        own = _dtype(leaf.dtype)
        bits = np.dtype(f"uint{8 * own.itemsize}") if own.itemsize <= 8 else own
        is_right = raw in (own, bits) and raw.isbuiltin == 1 and leaf.shape == leaf.raw_shape
    if not is_right:
        raise ValueError(f"{leaf.name!r:.100} is not as its array in the file is")
    return leaf


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text")
    return value


def _shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):  # pyright: ignore[reportUnknownVariableType]
        raise TypeError(f"{sizes!r:.100} is no shape")
    shape: tuple[int, ...] = tuple(sizes)  # pyright: ignore[reportUnknownArgumentType]
    if len(shape) > _MOST_AXES or math.prod(max(n, 1) for n in shape) > _MOST_ELEMENTS:
        raise ValueError(f"{shape!r:.100} is the shape of no array")
    return shape


def _dtype(name: str) -> np.dtype[Any]:
    dtype = jnp.dtype(name)
    if dtype.name != name or not is_number(dtype):
        raise ValueError(f"{name!r:.100} is no dtype of numbers")
    return dtype
