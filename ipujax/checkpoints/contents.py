"""The description of a checkpoint, stored as JSON beside its arrays."""

from __future__ import annotations

import dataclasses as dc
import json
import math

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.checkpoints.leaves import Leaf
from ipujax.checkpoints.position import Position
from ipujax.ground import json_text
from lowering import is_numeric_dtype

_FORMAT, _VERSION = "ipujax checkpoint", 1
_MOST_AXES, _MOST_ELEMENTS = 64, 2**56


class ForeignError(Exception):
    """A file that is no checkpoint of ipujax; the message follows the file's name."""


@dc.dataclass(frozen=True)
class Contents:
    """The leaves and data set position of a checkpoint, without the numbers.

    Attributes:
      leaves: in the order of the tree.
      position: the position of the data set, or None if it starts anew.
    """

    leaves: tuple[Leaf, ...]
    position: Position | None = None


def encode_contents(contents: Contents) -> str:
    """Encodes the contents as readable JSON."""
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


def decode_contents(text: bytes) -> Contents:
    """Decodes the contents from JSON.

    Raises:
      ForeignError: a text of others, or of a version to come.
    """
    try:
        description = json_text.parse_bounded_json(text)
        if description["format"] != _FORMAT:
            raise ForeignError("is no checkpoint of ipujax")
        if description["version"] != _VERSION:
            raise ForeignError(
                f"has version {description['version']}, and only {_VERSION} is known here"
            )
        position = description["position"]
        leaves = tuple(_decode_leaf_description(**leaf) for leaf in description["leaves"])
        if len({leaf.name for leaf in leaves}) < len(leaves):
            raise ValueError("two leaves have the same name")
        return Contents(leaves, None if position is None else Position.from_json(position))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ForeignError(f"is no checkpoint of ipujax ({error!r:.400})") from error


def _decode_leaf_description(
    shape: object,
    raw_shape: object,
    name: object,
    dtype: object,
    raw_dtype: object,
    impl: str | None,
) -> Leaf:
    """Builds a leaf that matches its array in the file.

    Raises:
      ValueError, TypeError: a leaf that no `Leaf` of an array is.
    """
    leaf = Leaf(
        _require_json_text(name),
        _require_json_text(dtype),
        _require_json_shape(shape),
        _require_json_text(raw_dtype),
        _require_json_shape(raw_shape),
        impl,
    )
    raw = _require_number_dtype(leaf.raw_dtype)
    if impl is not None:
        key = jax.eval_shape(lambda: jax.random.key(0, impl=_require_json_text(impl)))
        bits = jax.eval_shape(jax.random.key_data, key)
        expected_form = (str(key.dtype), bits.dtype, (*leaf.shape, *bits.shape))
        is_right = expected_form == (leaf.dtype, raw, leaf.raw_shape)
    else:
        leaf_dtype = _require_number_dtype(leaf.dtype)
        bits = (
            np.dtype(f"uint{8 * leaf_dtype.itemsize}") if leaf_dtype.itemsize <= 8 else leaf_dtype
        )
        is_right = raw in (leaf_dtype, bits) and raw.isbuiltin == 1 and leaf.shape == leaf.raw_shape
    if not is_right:
        raise ValueError(f"{leaf.name!r:.100} is not as its array in the file is")
    return leaf


def _require_json_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text")
    return value


def _require_json_shape(sizes: object) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):  # pyright: ignore[reportUnknownVariableType]
        raise TypeError(f"{sizes!r:.100} is no shape")
    shape: tuple[int, ...] = tuple(sizes)  # pyright: ignore[reportUnknownArgumentType]
    if len(shape) > _MOST_AXES or math.prod(max(n, 1) for n in shape) > _MOST_ELEMENTS:
        raise ValueError(f"{shape!r:.100} is the shape of no array")
    return shape


def _require_number_dtype(name: str) -> np.dtype:
    dtype = jnp.dtype(name)
    if dtype.name != name or not is_numeric_dtype(dtype):
        raise ValueError(f"{name!r:.100} is no dtype of numbers")
    return dtype
