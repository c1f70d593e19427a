"""Padding of tensors: with numbers, or with their own elements."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


class Type(enum.Enum):
    """The elements that surround a tensor which is padded with its own."""

    EDGE = "edge"
    """The nearest element."""
    REFLECT = "reflect"
    """The elements in the opposite direction, without the one at the edge."""


class MappingMethod(enum.Enum):
    """The tiles of the constant that surrounds a tensor."""

    NONE = 0
    """On no tile."""
    ZERO = 1
    """On tile 0."""
    EDGE = 2
    """Where the nearest element of the tensor lies."""


padding = SimpleNamespace(Type=Type, MappingMethod=MappingMethod)
"""C++'s namespace `popops::padding`."""


@check.guard
def pad(
    *arguments: Any,
    dim: int | None = None,
    val: Any = 0,
    mappingMethod: MappingMethod = MappingMethod.ZERO,
) -> Tensor:
    """Returns a view of a tensor with elements around it; negative paddings cut it.

    Call it as `pad(graph, t, lower, upper, val=0, mappingMethod=padding.MappingMethod.ZERO)` with
    how many there are before and after for each dimension, as `pad(graph, t, lower, upper, dim,
    val, mappingMethod)` with two numbers for one dimension, and without a graph as `pad(t, lower,
    upper, type)` or `pad(t, lower, upper, dim, type)`, where a `padding.Type` says which of its
    own elements they are. `val` is a number or a tensor of one element.

    Raises:
      poplar_error: paddings for other dimensions than the tensor has.
    """
    has_graph = bool(arguments) and isinstance(arguments[0], Graph)
    graph, *remaining_arguments = arguments if has_graph else (None, *arguments)
    if len(remaining_arguments) < 3:
        raise check.type_error("pad lacks arguments", "give graph, t, paddingLower, paddingUpper")
    t, lower, upper, *last_arguments = remaining_arguments
    check.require_instance(t, Tensor, "t")
    if not isinstance(lower, (list, tuple)):
        if dim is None and last_arguments:
            dim, *last_arguments = last_arguments
        dim = check.require_integer(dim, "dim", at_least=0)
        if dim >= t.rank():
            raise index_error(f"dimension {dim} of {t}", where=user_line())
        lower, upper = ([p if i == dim else 0 for i in range(t.rank())] for p in (lower, upper))
    widths = _read_widths(t, lower, upper)
    cut = tuple(
        slice(max(0, -low), extent - max(0, -high))
        for (low, high), extent in zip(widths, t.shape(), strict=True)
    )
    inner_elements = t.elements[cut]
    widths = [(max(0, low), max(0, high)) for low, high in widths]
    if graph is None:
        kind = check.require_instance(
            last_arguments[0] if last_arguments else None, Type, "type", "a padding.Type"
        )
        return _view(t, np.pad(inner_elements, widths, mode=kind.value), kind.value)
    if len(last_arguments) > 2:
        raise check.type_error("pad has too many arguments", "the mapping method is the last")
    value, method = [*last_arguments, *[val, mappingMethod][len(last_arguments) :]]
    method = check.require_instance(
        method, MappingMethod, "mappingMethod", "a padding.MappingMethod"
    )
    return _surround(graph, t, inner_elements, widths, value, method)


def _surround(
    graph: Graph,
    t: Tensor,
    inner_elements: np.ndarray,
    widths: Sequence[tuple[int, int]],
    value: Any,
    method: MappingMethod,
) -> Tensor:
    """Returns elements of a tensor with a number around them, or with a tensor's element."""
    is_outside = np.pad(np.zeros(inner_elements.shape, bool), widths, constant_values=True)
    elements = np.pad(inner_elements, widths)
    if isinstance(value, Tensor):
        elements[is_outside] = graph.require_tensor(value).elements.reshape(())
        return _view(t, elements, "a tensor's element")
    constant = graph.addConstant(t.type, [int(is_outside.sum())], value, "padding")
    if method is MappingMethod.ZERO:
        graph.setTileMapping(constant, 0)
    elif method is MappingMethod.EDGE and inner_elements.size:
        nearest = np.pad(inner_elements, widths, mode="edge")[is_outside]
        graph.tile_of[constant.elements] = graph.tile_of[nearest]
    elements[is_outside] = constant.elements
    return _view(t, elements, "padding")


def _view(t: Tensor, elements: np.ndarray, default_name: str) -> Tensor:
    return Tensor(t.graph, elements, t.type, t.name or default_name)


def _read_widths(t: Tensor, lower: Any, upper: Any) -> list[tuple[int, int]]:
    pairs = [*zip(lower, upper, strict=False)]
    if not len(lower) == len(upper) == t.rank():
        raise index_error(
            f"paddings {lower} and {upper} of {t}",
            where=user_line(),
            fix="give a number for each dimension, or two numbers and a dimension",
        )
    widths = [tuple(check.require_integer(n, "a padding") for n in pair) for pair in pairs]
    for (low, high), extent in zip(widths, t.shape(), strict=True):
        if min(0, low) + min(0, high) + extent < 0:
            raise index_error(f"paddings {lower} and {upper} of {t}", where=user_line())
    return [(low, high) for low, high in widths]
