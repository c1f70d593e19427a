"""Where values wait between uses: streaming memory beside the chip, or a slice on each replica.

`store` and `load` are identities as far as numbers go, and differentiate as such. In a Program
they are steps of their own (`ir.Store`, `ir.Load`): replay really moves the value, the machine
model counts its bytes. Without the compiler, and fused on one device, they are nothing.
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

from lowering.jaxpr import Primitive, ad, batching, mlir

store_p = Primitive("ipu_store")
load_p = Primitive("ipu_load")


@dc.dataclass(frozen=True, slots=True)
class Storage:
    """How a stored value is kept.

    Attributes:
      remote: in streaming memory, not in the tiles' own.
      sharded: each replica keeps an equal slice of it; loading gathers the slices.
    """

    remote: bool = False
    sharded: bool = False

    def __bool__(self) -> bool:
        """Whether storing does anything at all."""
        return self.remote or self.sharded


HERE = Storage()
"""Where a value is made and used."""


def store(x: Any, storage: Storage) -> Any:
    """The value of `x`, put where `storage` says; equal on all replicas if it is to be sharded."""
    return store_p.bind(x, storage=storage) if storage else x


def load(x: Any, storage: Storage) -> Any:
    """The value of a stored `x`, brought back to the IPU that reads it."""
    return load_p.bind(x, storage=storage) if storage else x


def _identity(x: Any, *, storage: Storage) -> Any:
    del storage
    return x


def _linear(primitive: Primitive) -> None:
    def transpose(cotangent: Any, x: Any, *, storage: Storage) -> list[Any]:
        del x, storage
        return [cotangent]

    def jvp(primals: Any, tangents: Any, *, storage: Storage) -> Any:
        return primitive.bind(*primals, storage=storage), tangents[0]

    def vmap(values: Any, dims: Any, *, storage: Storage) -> Any:
        return primitive.bind(*values, storage=storage), dims[0]

    primitive.def_impl(_identity)
    primitive.def_abstract_eval(_identity)
    mlir.register_lowering(primitive, mlir.lower_fun(_identity, multiple_results=False))
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = vmap


_linear(store_p)
_linear(load_p)
