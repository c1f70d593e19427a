"""The primitives of storage: streaming memory beside the chip, or a slice on each replica.

`ipu_store` and `ipu_load` are identities as far as numbers go, and differentiate as such. In a
Program they are steps of their own (`ir.Store`, `ir.Load`): replay really moves the value, and the
machine model counts its bytes. Without the compiler, and fused on one device, they do nothing.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.ops.define import define_identity_mark
from lowering.ops.types import Array

store_p = define_identity_mark("ipu_store")
load_p = define_identity_mark("ipu_load")


@dc.dataclass(frozen=True, slots=True)
class Storage:
    """The way in which a stored value is kept.

    Attributes:
      remote: in streaming memory, not in the tiles' own.
      sharded: each replica keeps an equal slice of it; loading gathers the slices.
      what: the kind of value, "state" of an optimizer or "sums" of gradients, for models of the
        program with other storage; "" for anything else.
      by_default: nobody asked for streaming memory, so that the value stays on the tiles of a
        system without it.
    """

    remote: bool = False
    sharded: bool = False
    what: str = dc.field(default="", repr=False)
    by_default: bool = dc.field(default=False, repr=False)

    def __bool__(self) -> bool:
        """Returns whether storing does anything at all."""
        return self.remote or self.sharded


ON_TILES = Storage()
"""The tiles of the IPU that makes and uses a value."""


def move_to_storage(x: Array, storage: Storage) -> Array:
    """Returns `x`, stored as `storage` says; equal on all replicas if it is to be sharded."""
    return store_p.bind(x, storage=storage) if storage != ON_TILES else x


def bring_from_storage(x: Array, storage: Storage) -> Array:
    """Returns a stored `x`, brought back to the IPU that reads it."""
    return load_p.bind(x, storage=storage) if storage != ON_TILES else x
