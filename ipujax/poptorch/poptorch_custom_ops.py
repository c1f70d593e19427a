"""The function `custom_op`: PopART's collectives in a model of PyTorch."""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from ipujax.doors.torch import jax_dtype_of
from ipujax.ground import Keywords
from ipujax.operators import (
    REDUCTIONS,
    exchange_in_group,
    gather_group,
    reduce_group,
    scatter_reduced,
)
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    trace_operator,
)

Array = jax.Array
Attributes = Mapping[str, Any]

_replicas: contextvars.ContextVar[int] = contextvars.ContextVar("replicas", default=1)

_OPERATOR, _GROUP = "__collectiveOperator", "__collectiveCommGroup"
_GROUPING = "__collectiveReplicaGrouping"
_ALL, _CONSECUTIVE, _ORTHOGONAL = 0, 1, 2


@contextlib.contextmanager
def trace_with_replicas(count: int) -> Generator[None]:
    """Sets the number of replicas of models that are traced in the block."""
    token = _replicas.set(count)
    try:
        yield
    finally:
        _replicas.reset(token)


@check.guard
def custom_op(
    inputs: object,
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: object,
    attributes: Attributes | None = None,
) -> list[torch.Tensor]:
    """Calls one of PopART's own operators: a collective.

    These are `ReplicatedAllReduce`, `ReplicatedAllGather`, `ReplicatedReduceScatter` and
    `ReplicatedAllToAll` of the domain `ai.graphcore`, over all replicas or groups of them.

    Args:
      inputs: a list of tensors.
      name: the operator's name.
      domain: the operator's domain.
      domain_version: the domain's version, 1.
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
    check.require_instance(attributes, Mapping, "attributes", "a dictionary", optional=True)
    for key, value in (attributes or {}).items():
        _check_custom_op_attribute(key, value)
    operator = _OPERATORS.get(name) if domain == "ai.graphcore" else None
    if operator is None or domain_version != 1:
        raise check.value_error(
            f"poptorch.custom_op: {domain}.{name} (version {domain_version}) is code for IPUs, "
            "which cannot run here",
            "write it with PyTorch's operators, or as poptorch.CPU(function, name) in inference; "
            f"of the domain ai.graphcore, version 1, there are {', '.join(_OPERATORS)}",
        )
    description = f"poptorch.custom_op: {name}"
    tensors, examples = (
        check.require_iterable(values, f"the {argument} of {description}", "tensors")
        for values, argument in ((inputs, "inputs"), (example_outputs, "example_outputs"))
    )
    tensors, examples = list(tensors), list(examples)
    for tensor in (*tensors, *examples):
        check.require_instance(
            tensor, torch.Tensor, f"an argument of {description}", "a torch.Tensor"
        )
    if len(tensors) != 1 or len(examples) != 1:
        raise check.value_error(f"{description} has one input and one output")
    settings = _read_collective_settings(description, attributes or {})
    _check_example_size(description, name, tensors[0], examples[0], len(settings["groups"][0]))
    if not isRunningOnIpu():
        raise check.value_error(
            f"{description} is called outside of a wrapped model",
            "call it in the forward of a module that poptorch.inferenceModel or trainingModel runs",
        )
    shape = list(examples[0].shape)
    return [trace_operator("collective", tensors[0], name, json.dumps(settings), shape)]


def _read_collective_settings(description: str, attributes: Attributes) -> Keywords:
    """Reads the number of a collective's operator and the replicas of each group."""
    known_names = (_OPERATOR, _GROUP, _GROUPING)
    if unknown_names := sorted(set(attributes) - {*known_names, "debug_context"}):
        raise check.value_error(
            f"{description} has no attribute {unknown_names[0]!r}", f"use {', '.join(known_names)}"
        )
    number = int(attributes.get(_OPERATOR, 0))
    if not 0 <= number < len(REDUCTIONS):
        raise check.value_error(
            f"{description}: {_OPERATOR} is {number}", "give a popart.CollectiveOperator"
        )
    count = _replicas.get()
    if _GROUPING in attributes:
        total, stride, size = _check_integer_list(description, _GROUPING, attributes[_GROUPING], 3)
        total = total or count
    else:
        kind, size = _check_integer_list(description, _GROUP, attributes.get(_GROUP, (_ALL, 0)), 2)
        total, size = count, {_ALL: count, _CONSECUTIVE: size, _ORTHOGONAL: size}.get(kind, 1)
        stride = max(count // max(size, 1), 1) if kind == _ORTHOGONAL else 1
    if total != count or size < 1 or stride < 1 or count % (size * stride):
        raise check.value_error(
            f"{description}: groups of {size} replicas with stride {stride} of {total} replicas, "
            f"and the model has {count}",
            "stride x size divides the number of replicas, options.replicationFactor",
        )
    numbers = np.arange(count).reshape(-1, size, stride).swapaxes(1, 2).reshape(-1, size)
    return {"operator": number, "groups": numbers.tolist()}


def _check_integer_list(description: str, name: str, value: object, count: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else []
    if len(values) != count or not all(isinstance(item, int) for item in values):
        raise check.value_error(f"{description}: {name} is {value!r}", f"give {count} integers")
    return [int(item) for item in values]


def _check_example_size(
    description: str, name: str, x: torch.Tensor, example: torch.Tensor, size: int
) -> None:
    count = {
        "ReplicatedAllGather": x.numel() * size,
        "ReplicatedReduceScatter": -(-x.numel() // size),
    }.get(name, x.numel())
    if example.numel() != count or jax_dtype_of(example.dtype) != jax_dtype_of(x.dtype):
        raise check.value_error(
            f"{description} gives {count} elements of {x.dtype}, and its example output has "
            f"{example.numel()} of {example.dtype}",
            "give an example of the result's shape and dtype",
        )
    if name == "ReplicatedAllToAll" and (not x.ndim or x.shape[0] % size):
        raise check.value_error(
            f"{description}: the first dimension of shape {tuple(x.shape)} is not divisible by "
            f"{size}"
        )


@define_traced_operator(
    "collective(Tensor x, str name, str settings, int[] shape) -> Tensor",
    lambda x, name, settings, shape: x.new_empty(shape),
)
def _run_collective(x: Array, name: str, settings: str, shape: Sequence[int]) -> Array:
    parsed_settings = json.loads(settings)
    result = _OPERATORS[name](parsed_settings["operator"], x, np.asarray(parsed_settings["groups"]))
    return result.reshape(tuple(shape))


_OPERATORS: dict[str, Callable[..., Array]] = {
    "ReplicatedAllReduce": reduce_group,
    "ReplicatedAllGather": lambda number, x, groups: gather_group(x, groups),
    "ReplicatedReduceScatter": scatter_reduced,
    "ReplicatedAllToAll": lambda number, x, groups: exchange_in_group(x, groups),
}


def _check_custom_op_attribute(key: object, value: object) -> None:
    if not isinstance(key, str):
        raise check.value_error("All attribute keys must be strings.")
    if not isinstance(value, float | int | str | list | tuple):
        raise check.value_error(
            "Attribute values must be floats, ints, strings or a list/tuple of float, ints of "
            "strings."
        )
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(not isinstance(item, type(items[0])) for item in items):
        raise check.value_error("The types in a list/tuple attribute must all be the same.")
    for text in (key, *(item for item in items if isinstance(item, str))):
        if not text.isascii():
            raise check.value_error(f"{text} contains non-ASCII characters.")
