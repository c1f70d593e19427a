"""Where values wait between uses: streaming memory beside the chip, or a slice on each replica.

`store` and `load` are identities as far as numbers go, and differentiate as such. In a Program
they are steps of their own (`ir.Store`, `ir.Load`): replay really moves the value, the machine
model counts its bytes. Without the compiler, and fused on one device, they are nothing.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.ops.define import define_mark
from lowering.ops.types import Array

store_p = define_mark("ipu_store")
load_p = define_mark("ipu_load")


@dc.dataclass(frozen=True, slots=True)
class Storage:
    """How a stored value is kept.

    Attributes:
      remote: in streaming memory, not in the tiles' own.
      sharded: each replica keeps an equal slice of it; loading gathers the slices.
      what: what the value is, "state" of an optimizer or "sums" of gradients, for whoever asks
        how the program would do with other storage; "" for anything else.
      by_default: nobody asked for streaming memory, so that a system without does as well.
    """

    remote: bool = False
    sharded: bool = False
    what: str = dc.field(default="", repr=False)
    by_default: bool = dc.field(default=False, repr=False)

    def __bool__(self) -> bool:
        """Whether storing does anything at all."""
        return self.remote or self.sharded


HERE = Storage()
"""Where a value is made and used."""


def store(x: Array, storage: Storage) -> Array:
    """The value of `x`, put where `storage` says; equal on all replicas if it is to be sharded."""
    return store_p.bind(x, storage=storage) if storage != HERE else x


def load(x: Array, storage: Storage) -> Array:
    """The value of a stored `x`, brought back to the IPU that reads it."""
    return load_p.bind(x, storage=storage) if storage != HERE else x
