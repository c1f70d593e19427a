"""What all objects of `ipujax.pva` share: they look at a report and keep nothing of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from ipujax.errors import OutOfBoundsError, UnmodelledError
from ipujax.report.checks import check
from ipujax.report.pva.held import Held

S = TypeVar("S")
T = TypeVar("T")


def told(find: Callable[[Any], T]) -> T:
    """What a view tells under a name: a property."""
    return cast(T, property(find))


@check.guard
class View:
    """A part of a report.

    Args:
      held: what it looks at.
      place: which of several parts, such as the number of a tile.

    A name that pva had, or may have had, and that the model cannot tell is an `AttributeError` that
    says so; `instead` holds what it says, by name.
    """

    instead: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check.guard(cls)

    def __init__(self, held: Held, *place: int) -> None:
        self._held, self._place = held, place

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property that failed says why itself
            return super().__getattribute__(name)
        raise self.unknown(name)

    def __repr__(self) -> str:
        """What it knows, by name."""
        return f"<pva.{type(self).__name__} with {', '.join(self._known())}>"

    def _known(self) -> list[str]:
        names = (name for name in dir(self) if not name.startswith("_"))
        return sorted(name for name in names if not hasattr(View, name))

    def unknown(self, name: str) -> AttributeError:
        """The error for what the model cannot tell."""
        kind = type(self).__name__
        if name.startswith("__"):
            return AttributeError(f"{kind!r} object has no attribute {name!r}")
        advice = self.instead.get(name, f"use one of {', '.join(self._known())}")
        return UnmodelledError(
            f"pva.{kind}.{name} is not something that the model of an IPU knows",
            fix=f"{advice}; everything that it knows is in ipu.report.load(path)",
        )


@check.guard
class Lazy(Sequence[T], Generic[S, T]):
    """The entries of another sequence, seen through a function when they are looked at.

    Args:
      source: what is there.
      make: from an entry of it to one of this.
      what: what to call an entry in errors.
    """

    def __init__(self, source: Sequence[S], make: Callable[[S], T], what: str) -> None:
        self._source, self._make, self._what = source, make, what

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
