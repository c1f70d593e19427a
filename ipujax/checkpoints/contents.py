"""What a checkpoint says of itself, as a text beside its arrays."""

from __future__ import annotations

import dataclasses as dc
import json
from typing import Any

from ipujax.checkpoints.leaves import Leaf
from ipujax.checkpoints.position import Position

_FORMAT, _VERSION = "ipujax checkpoint", 1


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
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ForeignError("is no checkpoint of ipujax")
        if found["version"] != _VERSION:
            raise ForeignError(f"has version {found['version']}, and only {_VERSION} is known here")
        position = found["position"]
        return Contents(
            tuple(_leaf(**leaf) for leaf in found["leaves"]),
            None if position is None else Position.from_json(position),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ForeignError(f"is no checkpoint of ipujax ({error!r})") from error


def _leaf(shape: list[int], raw_shape: list[int], **names: Any) -> Leaf:
    return Leaf(shape=tuple(shape), raw_shape=tuple(raw_shape), **names)
