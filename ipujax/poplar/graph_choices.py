"""Enumerations for a graph's methods: mappings of variables, clones, streams of replicas."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check
from ipujax.poplar.tensors import Tensor


class VariableMappingMethod(enum.Enum):
    """The tiles that `Graph.addVariable` maps a variable to."""

    NONE = 0
    """No tile."""
    LINEAR = 1
    """All tiles in order, as `poputil.mapTensorLinearly` does."""


class TensorCloneMethod(enum.Enum):
    """The treatment of a tensor's repeated elements by `Graph.clone`."""

    PRESERVE_ORDER_AND_ALIASES = 0
    """The clone has repeated elements, too."""
    CREATE_NEW_ORDER = 1
    """Each of the clone's elements is distinct."""
    PRESERVE_ORDER_UNLESS_ALIASES = 2
    """Each of the clone's elements is distinct."""
    GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES = 3
    """The clone has repeated elements, too."""

    @property
    def keeps_aliases(self) -> bool:
        """True if a repeated element of the tensor is a repeated element of the clone."""
        return self in (
            TensorCloneMethod.PRESERVE_ORDER_AND_ALIASES,
            TensorCloneMethod.GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES,
        )


class ReplicatedStreamMode(enum.Enum):
    """The transfers that replicas read; a graph is one replica, so both are the same here."""

    REPLICATE = 0
    BROADCAST = 1


def read_clone(
    arguments: Sequence[Any], name: str, method: TensorCloneMethod
) -> tuple[Type, Tensor, str, TensorCloneMethod]:
    """Returns the type, tensor, name and method that the arguments of `Graph.clone` give."""
    types = [argument for argument in arguments[:1] if isinstance(argument, Type)]
    tensor, *names_and_methods = arguments[len(types) :] or [None]
    tensor = check.require_instance(tensor, Tensor, "tensor")
    for argument in names_and_methods:
        if isinstance(argument, TensorCloneMethod):
            method = argument
        else:
            name = check.require_instance(argument, str, "debugContext")
    check.require_instance(method, TensorCloneMethod, "method")
    return (types or [tensor.type])[0], tensor, check.require_instance(name, str, "name"), method
