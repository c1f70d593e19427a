"""The base of all objects of `ipujax.pva`: views of a report that keep no data of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from ipujax.ground import OutOfBoundsError, UnmodelledError
from ipujax.report.pva.memory_contents import MemoryContents
from ipujax.report.report_checks import check

S = TypeVar("S")
T = TypeVar("T")


def view_property(find: Callable[[Any], T]) -> T:
    """Returns a property of a view, computed by a function of the view."""
    return cast(T, property(find))


@check.guard
class View:
    """A view of a part of a report.

    Args:
      contents: the contents of the report.
      indices: which of several parts, such as the number of a tile.

    A name that pva had, or may have had, and that the model does not know raises an
    `AttributeError`; `instead` holds the advice in it, by name.
    """

    instead: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check.guard(cls)

    def __init__(self, contents: MemoryContents, *indices: int) -> None:
        self._held, self._place = contents, indices

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property that failed raises its own error again
            return super().__getattribute__(name)
        raise self.make_unmodelled_error(name)

    def __repr__(self) -> str:
        """Returns the class and the names of the attributes."""
        return f"<pva.{type(self).__name__} with {', '.join(self._list_attributes())}>"

    def _list_attributes(self) -> list[str]:
        names = (name for name in dir(self) if not name.startswith("_"))
        return sorted(name for name in names if not hasattr(View, name))

    def make_unmodelled_error(self, name: str) -> AttributeError:
        """Returns the error for an attribute that the model does not know."""
        kind = type(self).__name__
        if name.startswith("__"):
            return AttributeError(f"{kind!r} object has no attribute {name!r}")
        advice = self.instead.get(name, f"use one of {', '.join(self._list_attributes())}")
        return UnmodelledError(
            f"pva.{kind}.{name} is not something that the model of an IPU knows",
            fix=f"{advice}; everything that it knows is in ipu.report.load(path)",
        )


@check.guard
class Lazy(Sequence[T], Generic[S, T]):
    """A sequence of another sequence's entries, converted by a function on access.

    Args:
      source: the other sequence.
      make: converts an entry of it to an entry of this sequence.
      noun: the word for an entry in errors.
    """

    def __init__(self, source: Sequence[S], make: Callable[[S], T], noun: str) -> None:
        self._source, self._make, self._what = source, make, noun

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return list(map(self._make, self._source[index]))
        if not -len(self) <= index < len(self):
            raise OutOfBoundsError(
                f"there is no {self._what} {index}: there are {len(self):,}, from 0 on"
            )
        return self._make(self._source[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._source)

    def __repr__(self) -> str:
        return f"<{len(self):,} entries: {self._what}s>"
