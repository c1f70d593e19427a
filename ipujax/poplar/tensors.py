"""Tensors: views of variables, as arrays of element numbers that NumPy slices without copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import check, graph_connection_error, index_error, type_error
from ipujax.poplar.user_lines import user_line

if TYPE_CHECKING:
    from ipujax.poplar.graph import Graph


@check.guard
class Interval:
    """A range of elements from `begin` to before `end`."""

    def __init__(self, begin: int, end: int):
        self.first = check.require_integer(begin, "begin", at_least=0)
        self.last = check.require_integer(end, "end", at_least=self.first)

    def begin(self) -> int:
        """Returns the index of the first element."""
        return self.first

    def end(self) -> int:
        """Returns the index after the last element."""
        return self.last

    def size(self) -> int:
        """Returns the number of elements."""
        return self.last - self.first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interval) and (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __repr__(self) -> str:
        return f"Interval({self.first}, {self.last})"


def as_interval(value: Any) -> Interval:
    """Returns an interval; a list of its begin and end stands for one, as braces do in C++."""
    if isinstance(value, Interval):
        return value
    if not _is_pair(value):
        raise type_error(
            f"{value!r} is no interval", where=user_line(), fix="give an Interval, or [begin, end]"
        )
    return Interval(*value)


@check.guard
class Tensor:
    """A view of elements of variables; its methods return further views and copy nothing.

    Attributes:
      graph: the graph of its variables.
      elements: int64, of the tensor's shape: the number in the graph of each element.
      type: the element type.
      name: the name of the (first) variable, for messages.
    """

    __slots__ = ("elements", "graph", "name", "type")

    def __init__(self, graph: Graph, elements: np.ndarray, type: Type, name: str):
        self.graph, self.elements, self.type, self.name = graph, elements, type, name

    def _view(self, elements: np.ndarray) -> Tensor:
        return Tensor(self.graph, elements, self.type, self.name)

    def _change(self, change: Callable[[], np.ndarray], description: str) -> Tensor:
        try:
            return self._view(change())
        except (ValueError, IndexError, TypeError) as error:
            raise index_error(
                f"{description} of {self}: {error}", where=user_line(), fix="see its shape()"
            ) from error

    def shape(self) -> list[int]:
        """Returns the extent of each dimension."""
        return list(self.elements.shape)

    def dim(self, i: int) -> int:
        """Returns the extent of dimension i."""
        self._require_dimension(i)
        return self.elements.shape[i]

    def rank(self) -> int:
        """Returns the number of dimensions."""
        return self.elements.ndim

    def numElements(self) -> int:
        """Returns the number of elements."""
        return self.elements.size

    def elementType(self) -> Type:
        """Returns the element type."""
        return self.type

    def __len__(self) -> int:
        return self.dim(0)

    def __getitem__(self, i: int) -> Tensor:
        """Returns the part at index i of the first dimension."""
        i = check.require_integer(i, "the index of a tensor")
        if not self.elements.ndim or not 0 <= i < self.elements.shape[0]:
            raise index_error(
                f"index {i} of {self}",
                where=user_line(),
                fix="indices begin at 0 and end before dim(0)",
            )
        return self._view(self.elements[i, ...])

    def slice(self, begin: Any, end: Any = None, dimension: int = 0) -> Tensor:
        """Returns a slice, `end` not included.

        Args:
          begin: the first index, an interval (an `Interval` or a pair), or one index for each
            dimension.
          end: the index after the last, or one for each dimension.
          dimension: the dimension, where `begin` is a number or an interval.
        """
        if isinstance(begin, Interval) or (not isinstance(end, Sequence) and _is_pair(begin)):
            interval, dimension = as_interval(begin), dimension if end is None else end
            begin, end = interval.first, interval.last
        is_list = isinstance(begin, Sequence)
        if not is_list:
            self._require_dimension(dimension)
        begins: list[Any] = list(begin) if is_list else [0] * dimension + [begin]
        ends: list[Any] = list(end) if is_list else [*self.elements.shape[:dimension], end]
        shape = self.elements.shape
        if len(begins) > len(shape) or len(begins) != len(ends):
            raise index_error(f"slice from {begin} to {end} of {self}", where=user_line())
        for first, last, extent in zip(begins, ends, shape, strict=False):
            if not 0 <= first <= last <= extent:
                raise index_error(
                    f"slice from {begin} to {end} of dimension {dimension} of {self}",
                    where=user_line(),
                    fix="0 <= begin <= end <= the extent",
                )
        cuts = tuple(slice(first, last) for first, last in zip(begins, ends, strict=True))
        return self._view(self.elements[cuts])

    def slices(self, intervals: Sequence[Any], dimension: int = 0) -> list[Tensor]:
        """Returns a slice for each interval, or for each list of intervals their concatenation."""

        def slice_of(part: Any) -> Tensor:
            if isinstance(part, Interval) or all(isinstance(bound, int) for bound in part):
                return self.slice(as_interval(part), None, dimension)
            return concat([self.slice(as_interval(i), None, dimension) for i in part], dimension)

        return [slice_of(part) for part in intervals]

    def flatten(self, dimBegin: int = 0, dimEnd: int | None = None) -> Tensor:
        """Returns a view with the dimensions from `dimBegin` to before `dimEnd` merged."""
        shape = self.elements.shape
        end = len(shape) if dimEnd is None else dimEnd
        merged = math.prod(shape[dimBegin:end])
        return self.reshape([*shape[:dimBegin], merged, *shape[end:]])

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """Returns a view of another shape with as many elements."""
        if any(extent < 0 for extent in shape):
            raise index_error(f"shape {list(shape)} for {self}", where=user_line())
        return self._change(lambda: self.elements.reshape(tuple(shape)), f"shape {list(shape)}")

    def transpose(self) -> Tensor:
        """Returns a view with the dimensions in the opposite order."""
        return self._view(self.elements.T)

    def dimShuffle(self, permutation: Sequence[int]) -> Tensor:
        """Returns a view with the dimensions permuted."""
        return self._change(
            lambda: self.elements.transpose(tuple(permutation)), f"order {list(permutation)}"
        )

    def expand(self, indices: Sequence[int]) -> Tensor:
        """Returns a view with a new dimension of extent 1 before each of these dimensions."""
        elements = self.elements
        for index in sorted(indices, reverse=True):
            if not 0 <= index <= elements.ndim:
                raise index_error(f"dimension {index} of {self}", where=user_line())
            elements = np.expand_dims(elements, index)
        return self._view(elements)

    def squeeze(self, dims: Sequence[int]) -> Tensor:
        """Returns a view without these dimensions, which have extent 1."""
        return self._change(lambda: np.squeeze(self.elements, tuple(dims)), f"squeeze {list(dims)}")

    def broadcast(self, count: int, dimension: int) -> Tensor:
        """Returns a view that repeats the tensor `count` times along a dimension."""
        self._require_dimension(dimension)
        count = check.require_integer(count, f"the count of copies of {self}", at_least=0)
        shape = self.elements.shape
        copies = np.broadcast_to(
            np.expand_dims(self.elements, dimension),
            (*shape[:dimension], count, *shape[dimension:]),
        )
        return self._view(
            copies.reshape(*shape[:dimension], count * shape[dimension], *shape[dimension + 1 :])
        )

    def reverse(self, dimension: int) -> Tensor:
        """Returns a view with a dimension reversed."""
        self._require_dimension(dimension)
        return self._view(np.flip(self.elements, dimension))

    def subSample(self, stride: int, dimension: int) -> Tensor:
        """Returns a view of every `stride`-th index of a dimension."""
        self._require_dimension(dimension)
        stride = check.require_integer(stride, f"the stride of a sample of {self}", at_least=1)
        return self._view(self.elements[(slice(None),) * dimension + (slice(None, None, stride),)])

    def reinterpret(self, type: Type) -> Tensor:
        """Returns a view of the tensor's bits as another type.

        Args:
          type: a type of elements as large; none of the two may be BOOL, unless both are.
        """
        type = require_type(type, "type")
        are_bools = (type.dtype == np.bool_, self.type.dtype == np.bool_)
        if type.size != self.type.size or are_bools[0] != are_bools[1]:
            raise type_error(
                f"{self} as {type}",
                where=user_line(),
                fix="give a type of elements as large, and no BOOL",
            )
        return Tensor(self.graph, self.elements, type, self.name)

    def append(self, other: Tensor, dimension: int) -> Tensor:
        """Returns the concatenation of this tensor and another along a dimension."""
        return concat([self, other], dimension)

    def _require_dimension(self, dimension: int) -> None:
        dimension = check.require_integer(dimension, "dimension", at_least=0)
        if dimension >= self.elements.ndim:
            raise index_error(
                f"dimension {dimension} of {self}",
                where=user_line(),
                fix="dimensions begin at 0 and end before rank()",
            )

    def __repr__(self) -> str:
        return f"tensor '{self.name}' of type {self.type} and shape {self.shape()}"


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


@check.guard
def concat(first: Any, second: Any = 0, dimension: int = 0) -> Tensor:
    """Returns the concatenation of tensors along a dimension.

    Args:
      first: the tensors, or the first of two.
      second: the second tensor; after a list, the dimension.
      dimension: the dimension, after two tensors.
    """
    if isinstance(first, Tensor):
        tensors = [first, second]
    else:
        tensors, dimension = list(first), second
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise type_error("concat takes tensors, at least one", where=user_line())
    start = tensors[0]
    for tensor in tensors:
        if tensor.graph is not start.graph:
            raise graph_connection_error(
                f"{tensor} and {start} are of two graphs", where=user_line()
            )
        if tensor.type != start.type:
            raise type_error(
                f"{tensor} and {start} have different types", where=user_line(), fix="cast one"
            )
    if dimension >= start.rank():
        raise index_error(f"dimension {dimension} of {start}", where=user_line())
    return start._change(  # pyright: ignore[reportPrivateUsage]
        lambda: np.concatenate([tensor.elements for tensor in tensors], dimension),
        f"concatenation along dimension {dimension}",
    )
