"""Slices at offsets that the device computes, gathers, scatters, sorts and one-hot rows."""

from __future__ import annotations

import dataclasses as dc
import enum
import itertools
from collections.abc import Sequence as AbstractSequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.element_types import Type
from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import (
    Operand,
    PlanningCache,
    add_planned,
    read_title,
    split_at_program,
    title_of,
)
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_Numbers = AbstractSequence[int]


@check.guard
def dynamicSlice(
    graph: Graph, t: Tensor, offset: Tensor, dims: _Numbers, sizes: _Numbers, prog: Sequence,
    *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds a slice of some dimensions, from offsets that a tensor holds; returns its tensor.

    Args:
      graph: the graph.
      t: the tensor.
      offset: an offset for each of `dims`; slices go round the end.
      dims: the dimensions that are sliced.
      sizes: the extent of the slice in each.
      prog: the sequence.
      *rest: a name, and options, which change nothing.
    """
    _check_slices(t, dims, sizes)
    ranges = [jnp.arange(size) for size in sizes]

    def compute(x: jax.Array, offsets: jax.Array) -> jax.Array:
        for dim, indices, start in zip(dims, ranges, offsets.reshape(-1), strict=True):
            x = jnp.take(x, (start.astype(int) + indices) % x.shape[dim], axis=dim)
        return x

    name = read_title("dynamicSlice", rest)
    return add_planned(graph, prog, name, compute, [t, offset])[0]


@check.guard
def dynamicUpdate(
    graph: Graph, t: Tensor, s: Tensor, offset: Tensor, dims: _Numbers, sizes: _Numbers,
    prog: Sequence, *rest: Any,
) -> None:  # fmt: skip
    """Adds a program that writes a slice into a tensor, at offsets; see `dynamicSlice`."""
    _check_slices(t, dims, sizes)

    def compute(x: jax.Array, slice_: jax.Array, offsets: jax.Array) -> jax.Array:
        indices: list[Any] = [jnp.arange(extent) for extent in x.shape]
        for dim, size, start in zip(dims, sizes, offsets.reshape(-1), strict=True):
            indices[dim] = (start.astype(int) + jnp.arange(size)) % x.shape[dim]
        return x.at[jnp.ix_(*indices)].set(slice_)

    name = read_title("dynamicUpdate", rest)
    add_planned(graph, prog, name, compute, [t, s, offset], outs=[t])


def _check_slices(t: Tensor, dims: _Numbers, sizes: _Numbers) -> None:
    check.require_instance(t, Tensor, "t")
    for dim, size in itertools.zip_longest(dims, sizes, fillvalue=-1):
        if not (0 <= dim < t.rank() and 0 <= size <= t.shape()[dim]):
            raise index_error(
                f"a slice of dimensions {list(dims)} and sizes {list(sizes)} of {t}",
                where=user_line(),
                fix="give a size, at most the extent, for each dimension",
            )


@check.guard
def multiSlice(
    graph: Graph, t: Tensor, offsets: Tensor, dims: _Numbers, sizes: _Numbers, prog: Sequence,
    *rest: Any,
) -> Tensor:  # fmt: skip
    """Adds a slice for each row of offsets; returns their tensor, [rows, *the slice].

    Args:
      graph: the graph.
      t: the tensor.
      offsets: [rows, dims].
      dims: the dimensions that are sliced.
      sizes: the extent of a slice in each.
      prog: the sequence.
      *rest: a plan and options, which change nothing, and a name.
    """
    _check_slices(t, dims, sizes)
    indices = [jnp.arange(size) for size in sizes]

    def compute(x: jax.Array, offsets: jax.Array) -> jax.Array:
        def slice_at(row: jax.Array) -> jax.Array:
            part = x
            for dim, index, start in zip(dims, indices, row, strict=True):
                part = jnp.take(part, start.astype(int) + index, axis=dim, mode="clip")
            return part

        return jax.vmap(slice_at)(offsets.reshape(-1, len(dims)))

    return add_planned(graph, prog, read_title("multiSlice", rest), compute, [t, offsets])[0]


@check.guard
def multiUpdateAdd(
    graph: Graph, t: Tensor, s: Tensor, offsets: Tensor, scale: Any, dims: _Numbers,
    sizes: _Numbers, prog: Sequence, *rest: Any,
) -> None:  # fmt: skip
    """Adds a program that adds some slices, times a scale, to a tensor; see `multiSlice`."""
    _check_slices(t, dims, sizes)

    def compute(x: jax.Array, slices: jax.Array, offsets: jax.Array, scale: Any) -> jax.Array:
        rows = offsets.reshape(-1, len(dims)).astype(int)
        indices: list[Any] = []
        for dim, extent in enumerate(x.shape):
            positions = jnp.arange(extent)[None]
            if dim in dims:
                number = [*dims].index(dim)
                positions = rows[:, number, None] + jnp.arange(sizes[number])
            shape = [1] * (x.ndim + 1)
            shape[0], shape[dim + 1] = positions.shape
            indices.append(positions.reshape(shape))
        return x.at[tuple(indices)].add((jnp.reshape(scale, ()) * slices).astype(x.dtype))

    name = read_title("multiUpdateAdd", rest)
    add_planned(graph, prog, name, compute, [t, s, offsets, scale], outs=[t])


@check.guard
def gather(graph: Graph, input: Tensor, indices: Tensor, *arguments: Any) -> Tensor:
    """Adds a gather to a program, and returns its tensor.

    Args:
      graph: the graph.
      input: the tensor.
      indices: whole numbers.
      *arguments: `axis, prog, params`: the parts of that dimension at the indices; or, as in XLA,
        `indexVectorDim, offsetDims, sliceSizes, collapsedSliceDims, startIndexMap, prog`; and
        a name, and options, which change nothing.
    """
    parameters, prog, trailing_arguments = split_at_program("gather", arguments, (1, 5))
    name = read_title("gather", trailing_arguments)
    if len(parameters) == 1:
        axis = check.require_integer(parameters[0], "axis", at_least=0)
        return add_planned(
            graph, prog, name, lambda x, i: jnp.take(x, i.astype(int), axis=axis, mode="clip"),
            [input, indices],
        )[0]  # fmt: skip
    index_dim, offset_dims, sizes, collapsed, start_map = parameters
    numbers = lax.GatherDimensionNumbers(tuple(offset_dims), tuple(collapsed), tuple(start_map))

    def compute(x: jax.Array, indices: jax.Array) -> jax.Array:
        rows = _indices_last(indices, index_dim)
        return lax.gather(x, rows, numbers, tuple(sizes), mode="clip")

    return add_planned(graph, prog, name, compute, [input, indices])[0]


@check.guard
def scatter(
    graph: Graph, operand: Tensor, indices: Tensor, updates: Tensor, *arguments: Any
) -> None:
    """Adds a program that writes updates into a tensor at indices, as XLA's scatter.

    Args:
      graph: the graph.
      operand: the tensor that is written.
      indices: whole numbers.
      updates: the values that are written.
      *arguments: `indexVectorDim, updateWindowDims, insertWindowDims, scatterDimsToOperandDims,
        prog`, and a name.
    """
    parameters, prog, trailing_arguments = split_at_program("scatter", arguments, (4,))
    index_dim, window, insert, to_operand = parameters
    numbers = lax.ScatterDimensionNumbers(tuple(window), tuple(insert), tuple(to_operand))

    def compute(x: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
        return lax.scatter(x, _indices_last(indices, index_dim), updates, numbers)

    name = read_title("scatter", trailing_arguments)
    add_planned(graph, prog, name, compute, [operand, indices, updates], outs=[operand])


def _indices_last(indices: jax.Array, index_dim: int) -> jax.Array:
    """Returns indices as XLA takes them: int32, with their vectors in the last dimension."""
    indices = indices.astype(jnp.int32)
    return indices[..., None] if index_dim == indices.ndim else jnp.moveaxis(indices, index_dim, -1)


@check.guard
@dc.dataclass(frozen=True)
class GatherParams(PlanningCache):
    """The split of `gather` over tiles; accepted and unused, as the planner decides it."""

    maxElementsPerTile: int = 65535

    def __post_init__(self) -> None:
        check.require_integer(self.maxElementsPerTile, "maxElementsPerTile", at_least=1)


class SlicePlan(PlanningCache):
    """A plan of slices; accepted and unused, as the planner makes its own."""


class SortOrder(enum.Enum):
    """The order of what `topK` gives."""

    NONE = 0
    ASCENDING = 1
    DESCENDING = 2


@check.guard
@dc.dataclass(frozen=True)
class TopKParams:
    """The number, order and end of the elements that `topK` selects.

    Attributes:
      k: the number of elements of each row.
      largest: the largest, or else the smallest.
      sortOrder: their order.
      stableSort: whether equal elements keep their order; here they always do.
    """

    k: int
    largest: bool
    sortOrder: SortOrder
    stableSort: bool = False

    def __post_init__(self) -> None:
        check.require_integer(self.k, "k", at_least=0)
        check.require_flag(self.largest, "largest")
        check.require_instance(self.sortOrder, SortOrder, "sortOrder")
        check.require_flag(self.stableSort, "stableSort")


@check.guard
def topK(
    graph: Graph, prog: Sequence, t: Tensor, params: TopKParams, debugContext: str = ""
) -> Tensor:
    """Adds a selection of the k largest (or smallest) elements of the last dimension."""
    return topKWithPermutation(graph, prog, t, params, debugContext)[0]


@check.guard
def topKWithPermutation(
    graph: Graph, prog: Sequence, t: Tensor, params: TopKParams, debugContext: str = ""
) -> tuple[Tensor, Tensor]:
    """Adds `topK`; returns the elements and their indices in the last dimension, UNSIGNED_INT."""
    check.require_instance(params, TopKParams, "params")
    check.require_instance(t, Tensor, "t")
    if not t.rank() or params.k > t.shape()[-1]:
        raise index_error(f"the {params.k} largest elements of rows of {t}", where=user_line())
    is_descending = params.sortOrder is not SortOrder.ASCENDING

    def compute(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        order = jnp.argsort(x, axis=-1, stable=True, descending=params.largest)
        order = order[..., : params.k]
        if is_descending != params.largest:
            order = jnp.flip(order, -1)
        return jnp.take_along_axis(x, order, axis=-1), order.astype(jnp.uint32)

    values, positions = add_planned(graph, prog, title_of("topK", debugContext), compute, [t])
    return values, positions


@check.guard
def topKKeyValue(
    graph: Graph,
    prog: Sequence,
    keys: Tensor,
    values: Tensor,
    params: TopKParams,
    debugContext: str = "",
) -> tuple[Tensor, Tensor]:
    """Adds `topK` of keys; returns them, and the values at their indices."""
    check.require_instance(values, Tensor, "values")
    if check.require_instance(keys, Tensor, "keys").shape() != values.shape():
        raise index_error(f"{values} for keys {keys}", where=user_line(), fix="give equal shapes")
    chosen, positions = topKWithPermutation(graph, prog, keys, params, debugContext)

    def compute(values: jax.Array, positions: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, positions.astype(int), axis=-1)

    title = title_of("topKKeyValue", debugContext)
    return chosen, add_planned(graph, prog, title, compute, [values, positions])[0]


@check.guard
def sort(graph: Graph, t: Tensor, dim: int, prog: Sequence, debugContext: str = "") -> Tensor:
    """Adds a sort along a dimension, the smallest first, and returns its tensor."""
    return _add_sort(graph, t, dim, prog, debugContext, None)


@check.guard
def sortInPlace(graph: Graph, t: Tensor, dim: int, prog: Sequence, debugContext: str = "") -> None:
    """Adds a program that sorts a tensor along a dimension."""
    _add_sort(graph, t, dim, prog, debugContext, t)


def _add_sort(
    graph: Graph, t: Tensor, dim: int, prog: Sequence, name: str, out: Tensor | None
) -> Tensor:
    dim, title = _require_dim(t, dim), title_of("sort", name)
    return add_planned(graph, prog, title, lambda x: jnp.sort(x, axis=dim), [t], outs=[out])[0]


@check.guard
def sortKeyValue(
    graph: Graph, k: Tensor, v: Tensor, dim: int, prog: Sequence, debugContext: str = ""
) -> Tensor:
    """Adds a sort of values by their keys along a dimension, and returns their tensor."""
    dim = _require_dim(k, dim)

    def compute(keys: jax.Array, values: jax.Array) -> jax.Array:
        order = jnp.argsort(keys, axis=dim, stable=True)
        return jnp.take_along_axis(values, order, axis=dim)

    return add_planned(graph, prog, title_of("sortKeyValue", debugContext), compute, [k, v])[0]


@check.guard
def sortKeyValueInPlace(
    graph: Graph, k: Tensor, v: Tensor, dim: int, prog: Sequence, debugContext: str = ""
) -> None:
    """Adds a program that sorts keys along a dimension, and values by them."""
    dim = _require_dim(k, dim)

    def compute(keys: jax.Array, values: jax.Array) -> tuple[jax.Array, ...]:
        order = jnp.argsort(keys, axis=dim, stable=True)
        return tuple(jnp.take_along_axis(array, order, axis=dim) for array in (keys, values))

    title = title_of("sortKeyValue", debugContext)
    add_planned(graph, prog, title, compute, [k, v], outs=[k, v])


def _require_dim(t: Tensor, dim: int) -> int:
    dim = check.require_integer(dim, "dim", at_least=0)
    if dim >= check.require_instance(t, Tensor, "t").rank():
        raise index_error(f"dimension {dim} of {t}", where=user_line())
    return dim


@check.guard
def encodeOneHot(
    graph: Graph, indices: Tensor, encoded: Tensor, prog: Sequence, *rest: Any
) -> None:
    """Adds a program that writes rows of zeros with a one at each index.

    Args:
      graph: the graph.
      indices: [rows].
      encoded: [rows, classes], which is written.
      prog: the sequence.
      *rest: the values for on and off, tensors of one element or numbers; and a name.
    """
    numbers = [argument for argument in rest if isinstance(argument, Operand)]
    if len(numbers) not in (0, 2):
        raise check.type_error("encodeOneHot takes numbers for on and off, or none")
    on, off = numbers or (1, 0)
    dtype, classes = encoded.type.dtype, encoded.shape()[-1]

    def compute(indices: jax.Array, on: Any, off: Any) -> jax.Array:
        hits = indices.reshape(-1)[:, None] == jnp.arange(classes)
        return jnp.where(hits, jnp.reshape(on, ()), jnp.reshape(off, ())).astype(dtype)

    name_and_options = [argument for argument in rest if not isinstance(argument, Operand)]
    title = read_title("encodeOneHot", name_and_options)
    add_planned(graph, prog, title, compute, [indices, on, off], outs=[encoded])


@check.guard
def createSliceableTensor(
    graph: Graph, type: Type, shape: _Numbers, dims: _Numbers, sizes: _Numbers, *rest: Any
) -> Tensor:
    """Returns a new tensor that `dynamicSlice` and `multiSlice` slice, mapped linearly."""
    tensor = graph.addVariable(type, shape, read_title("sliceable", rest))
    _check_slices(tensor, dims, sizes)
    graph.map_linearly(tensor)
    return tensor
