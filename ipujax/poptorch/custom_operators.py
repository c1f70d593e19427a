"""`custom_op`: PopART's own operators in a model of PyTorch."""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from ipujax.frontends.pytorch.arrays import dtype_of
from ipujax.operators.replica_groups import (
    REDUCTIONS,
    exchange_in_group,
    gather_group,
    reduce_group,
    scatter_reduced,
)
from ipujax.poptorch.checks import check
from ipujax.poptorch.operators import isRunningOnIpu, traced, traced_operator

Array = jax.Array
Attributes = Mapping[str, Any]

_replicas: contextvars.ContextVar[int] = contextvars.ContextVar("replicas", default=1)

_OPERATOR, _GROUP = "__collectiveOperator", "__collectiveCommGroup"
_GROUPING = "__collectiveReplicaGrouping"
_ALL, _CONSECUTIVE, _ORTHOGONAL = 0, 1, 2


@contextlib.contextmanager
def with_replicas(count: int) -> Generator[None]:
    """Models that are traced in the block run on so many replicas."""
    token = _replicas.set(count)
    try:
        yield
    finally:
        _replicas.reset(token)


@check.guard
def custom_op(
    inputs: Any,
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Any,
    attributes: Attributes | None = None,
) -> list[torch.Tensor]:
    """An operation of PopART's own: one of its collectives.

    These are `ReplicatedAllReduce`, `ReplicatedAllGather`, `ReplicatedReduceScatter` and
    `ReplicatedAllToAll` of the domain `ai.graphcore`, over all replicas or groups of them.

    Args:
      inputs: a list of tensors.
      name: the operator's.
      domain: that it is of.
      domain_version: of that; there is version 1.
      example_outputs: tensors of the shapes and dtypes of the results; a result of as many
        elements is given their shape.
      attributes: `__collectiveOperator`, the number of a `popart.CollectiveOperator`; and
        `__collectiveReplicaGrouping`, replicas in all, stride and size of a group, or
        `__collectiveCommGroup`, the number of a `CommGroupType` and the size of a group.

    Raises:
      Error: (a `ValueError`) another operator, which is code for IPUs; attributes that are none, or
        that the operator does not have; groups that the replicas do not make; a call outside of a
        wrapped model.
    """
    check.instance(attributes, Mapping, "attributes", "a dictionary", optional=True)
    for key, value in (attributes or {}).items():
        _check_attribute(key, value)
    operator = _OPERATORS.get(name) if domain == "ai.graphcore" else None
    if operator is None or domain_version != 1:
        raise check.refuse(
            f"poptorch.custom_op: {domain}.{name} (version {domain_version}) is code for IPUs, "
            "which cannot run here",
            "write it with PyTorch's operators, or as poptorch.CPU(function, name) in inference; "
            f"of the domain ai.graphcore, version 1, there are {', '.join(_OPERATORS)}",
        )
    what = f"poptorch.custom_op: {name}"
    tensors, examples = (
        check.iterable(values, f"the {of} of {what}", "tensors")
        for values, of in ((inputs, "inputs"), (example_outputs, "example_outputs"))
    )
    tensors, examples = list(tensors), list(examples)
    for tensor in (*tensors, *examples):
        check.instance(tensor, torch.Tensor, f"an argument of {what}", "a torch.Tensor")
    if len(tensors) != 1 or len(examples) != 1:
        raise check.refuse(f"{what} has one input and one output")
    settings = _settings_of(what, attributes or {})
    _check_size(what, name, tensors[0], examples[0], len(settings["groups"][0]))
    if not isRunningOnIpu():
        raise check.refuse(
            f"{what} is called outside of a wrapped model",
            "call it in the forward of a module that poptorch.inferenceModel or trainingModel runs",
        )
    shape = list(examples[0].shape)
    return [traced("collective", tensors[0], name, json.dumps(settings), shape)]


def _settings_of(what: str, attributes: Attributes) -> dict[str, Any]:
    """The number of the operator, and the numbers of the replicas in each group."""
    known = (_OPERATOR, _GROUP, _GROUPING)
    if other := sorted(set(attributes) - {*known, "debug_context"}):
        raise check.refuse(f"{what} has no attribute {other[0]!r}", f"use {', '.join(known)}")
    number = int(attributes.get(_OPERATOR, 0))
    if not 0 <= number < len(REDUCTIONS):
        raise check.refuse(f"{what}: {_OPERATOR} is {number}", "give a popart.CollectiveOperator")
    count = _replicas.get()
    if _GROUPING in attributes:
        total, stride, size = _integers(what, _GROUPING, attributes[_GROUPING], 3)
        total = total or count
    else:
        kind, size = _integers(what, _GROUP, attributes.get(_GROUP, (_ALL, 0)), 2)
        total, size = count, {_ALL: count, _CONSECUTIVE: size, _ORTHOGONAL: size}.get(kind, 1)
        stride = max(count // max(size, 1), 1) if kind == _ORTHOGONAL else 1
    if total != count or size < 1 or stride < 1 or count % (size * stride):
        raise check.refuse(
            f"{what}: groups of {size} replicas with stride {stride} of {total} replicas, and the "
            f"model has {count}",
            "stride x size divides the number of replicas, options.replicationFactor",
        )
    numbers = np.arange(count).reshape(-1, size, stride).swapaxes(1, 2).reshape(-1, size)
    return {"operator": number, "groups": numbers.tolist()}


def _integers(what: str, name: str, value: Any, count: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else []
    if len(values) != count or not all(isinstance(item, int) for item in values):
        raise check.refuse(f"{what}: {name} is {value!r}", f"give {count} integers")
    return [int(item) for item in values]


def _check_size(what: str, name: str, x: torch.Tensor, example: torch.Tensor, size: int) -> None:
    count = {
        "ReplicatedAllGather": x.numel() * size,
        "ReplicatedReduceScatter": -(-x.numel() // size),
    }.get(name, x.numel())
    if example.numel() != count or dtype_of(example.dtype) != dtype_of(x.dtype):
        raise check.refuse(
            f"{what} gives {count} elements of {x.dtype}, and its example output has "
            f"{example.numel()} of {example.dtype}",
            "give an example of the result's shape and dtype",
        )
    if name == "ReplicatedAllToAll" and (not x.ndim or x.shape[0] % size):
        raise check.refuse(
            f"{what}: the first dimension of shape {tuple(x.shape)} is not dealt to {size} replicas"
        )


@traced_operator(
    "collective(Tensor x, str name, str settings, int[] shape) -> Tensor",
    lambda x, name, settings, shape: x.new_empty(shape),
)
def _collective(x: Array, name: str, settings: str, shape: Sequence[int]) -> Array:
    given = json.loads(settings)
    result = _OPERATORS[name](given["operator"], x, np.asarray(given["groups"]))
    return result.reshape(tuple(shape))


_OPERATORS: dict[str, Callable[..., Array]] = {
    "ReplicatedAllReduce": reduce_group,
    "ReplicatedAllGather": lambda number, x, groups: gather_group(x, groups),
    "ReplicatedReduceScatter": scatter_reduced,
    "ReplicatedAllToAll": lambda number, x, groups: exchange_in_group(x, groups),
}


def _check_attribute(key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise check.refuse("All attribute keys must be strings.")
    if not isinstance(value, float | int | str | list | tuple):
        raise check.refuse(
            "Attribute values must be floats, ints, strings or a list/tuple of float, ints of "
            "strings."
        )
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(not isinstance(item, type(items[0])) for item in items):
        raise check.refuse("The types in a list/tuple attribute must all be the same.")
    for text in (key, *(item for item in items if isinstance(item, str))):
        if not text.isascii():
            raise check.refuse(f"{text} contains non-ASCII characters.")
