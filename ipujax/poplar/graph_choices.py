"""What calls of a graph choose among: mappings of variables, clones, streams of replicas."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check
from ipujax.poplar.tensors import Tensor


class VariableMappingMethod(enum.Enum):
    """Where `Graph.addVariable` puts a variable."""

    NONE = 0
    """On no tile."""
    LINEAR = 1
    """Over all tiles in order, as `poputil.mapTensorLinearly` does."""


class TensorCloneMethod(enum.Enum):
    """What a clone of a tensor does where one element of it is at several places."""

    PRESERVE_ORDER_AND_ALIASES = 0
    """The clone has one element there, too."""
    CREATE_NEW_ORDER = 1
    """Each place has an element of its own."""
    PRESERVE_ORDER_UNLESS_ALIASES = 2
    """Each place has an element of its own."""
    GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES = 3
    """The clone has one element there, too."""

    @property
    def keeps_aliases(self) -> bool:
        """Whether places that are one element in the tensor are one in the clone."""
        return self in (
            TensorCloneMethod.PRESERVE_ORDER_AND_ALIASES,
            TensorCloneMethod.GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES,
        )


class ReplicatedStreamMode(enum.Enum):
    """What replicas read from a stream; a graph is one replica, so both are the same here."""

    REPLICATE = 0
    BROADCAST = 1


def read_clone(
    arguments: Sequence[Any], name: str, method: TensorCloneMethod
) -> tuple[Type, Tensor, str, TensorCloneMethod]:
    """Returns the type, the tensor, the name and the method that `Graph.clone` is asked for."""
    types = [each for each in arguments[:1] if isinstance(each, Type)]
    given = arguments[len(types) :]
    tensor = check.require_instance(given[0] if given else None, Tensor, "tensor")
    for each in given[1:]:
        if isinstance(each, TensorCloneMethod):
            method = each
        else:
            name = check.require_instance(each, str, "debugContext")
    check.require_instance(method, TensorCloneMethod, "method")
    return (types or [tensor.type])[0], tensor, check.require_instance(name, str, "name"), method
