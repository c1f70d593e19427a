"""What a kernel consists of: operations, loops and branches, in lists of numbered values."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lowering import marks
from lowering.call_paths import functions
from lowering.jaxpr import JaxprEqn, user_line
from lowering.machine.cost import Operation, Shape
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.iterations import Turns
from lowering.machine.labels import label
from lowering.ops import user_ops

Block: TypeAlias = tuple[str, int]
"""An outlined function, and the number of one of its calls."""


def describe(tensor: Shape) -> str:
    """As `float16[128,1024]`."""
    return f"{tensor.dtype}[{','.join(map(str, tensor.dims))}]"


@dc.dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Operations that run as one: an equation, or a fused chain of elementwise ones.

    Attributes:
      operations: what runs; the last one's results are the item's.
      reads: the values that it reads, each operand of each operation; None for literals and for
        what another operation of the chain gives.
      writes: the values that it writes.
      eqn: the (last) equation, for its line; None for a constant.
      backward: whether JAX has transposed it.
      scope: the scopes around it that somebody has named, as `blocks/attention`, or "".
      direction: of the pass that it belongs to; None in programs that only go one way.
      functions: names of the functions around it that are called as a whole, outermost first.
      block: the outlined function around it, and which of its calls; None if there is none.
    """

    operations: tuple[Operation, ...]
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn | None
    backward: bool = False
    scope: str = ""
    direction: Direction | None = None
    functions: tuple[str, ...] = ()
    block: Block | None = None

    @property
    def name(self) -> str:
        """Its primitives; of an operation of the user's own, what he calls it, too."""
        custom = user_ops.name_of(self.eqn) if self.eqn is not None else None
        return custom or " ".join(operation.name for operation in self.operations)

    @property
    def label(self) -> str:
        """What people call it."""
        custom = user_ops.name_of(self.eqn) if self.eqn is not None else None
        if custom:
            return custom.rpartition(":")[2].replace("_", " ")
        return label(self.operations, (*self.functions, *functions(self.eqn)), self.scope)

    @property
    def title(self) -> str:
        """What reports call it exactly: its primitives, and the first result."""
        result = self.operations[-1].results
        title = f"{self.name} {describe(result[0])}" if result else self.name
        return f"{title}, backward" if self.backward else title


@dc.dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop inside a kernel.

    Attributes:
      bodies: what one iteration runs: the body, and a condition before it if there is one.
      trips: how often; None if only values tell.
      reads: what its operands are outside, in the order of `inner`.
      inner: for each body, which operand of the loop each of its operands is.
      carried: pairs (operand of the loop, result of the last body) that are one buffer.
      writes: its results: those of the last body, stacked ones after carried ones.
      direction: of what it does beside its bodies.
    """

    bodies: tuple[Listing, ...]
    trips: int | None
    reads: tuple[int | None, ...]
    inner: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[int, int], ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn
    direction: Direction | None = None

    @property
    def turns(self) -> int:
        """How often it is taken to run: once, if only values tell."""
        return 1 if self.trips is None else self.trips


@dc.dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Branches inside a kernel, of which one runs; all read the same.

    Attributes:
      turns: the branch that each iteration of the loop around it takes; None if values tell.
    """

    branches: tuple[Listing, ...]
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn
    turns: Turns | None = None

    def taken(self, turn: int | None) -> int | None:
        """The branch of one iteration; None if only values tell."""
        return None if turn is None or self.turns is None else int(self.turns[turn])


Entry: TypeAlias = Item | Loop | Choice


@dc.dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A kernel: what it takes, does and gives.

    Attributes:
      shapes: of every value; those that are no operands and that nothing makes are constants.
      operands: the values it starts with.
      results: the values it ends with; None for a literal.
      items: in order.
    """

    shapes: tuple[Shape, ...]
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    items: tuple[Entry, ...]


def line_of(entry: Entry) -> str:
    """The user's `file:line`, or ""."""
    return user_line(entry.eqn) if entry.eqn is not None else ""


def values(reads: Iterable[int | None]) -> list[int]:
    """What is read, without literals."""
    return [value for value in reads if value is not None]


def with_bodies(listing: Listing, change: Callable[[Listing], Listing]) -> Listing:
    """The listing with the bodies of its loops and branches changed."""
    return dc.replace(listing, items=tuple(_inside(entry, change) for entry in listing.items))


def belonging(entry: Entry, backward: bool, scope: str, block: Block | None = None) -> Entry:
    """The entry, and all in its bodies, as parts of a backward pass and a scope.

    Args:
      entry: what has no more than its own.
      backward: whether the backward pass is around it.
      scope: the scopes around it.
      block: the outlined function around it, and which of its calls.
    """

    def inside(body: Listing) -> Listing:
        items = tuple(belonging(each, backward, scope, block) for each in body.items)
        return dc.replace(body, items=items)

    if isinstance(entry, Item):
        around = marks.within(scope, entry.scope)
        backward, block = entry.backward or backward, entry.block or block
        return dc.replace(entry, backward=backward, scope=around, block=block)
    return _inside(entry, inside)


def _inside(entry: Entry, change: Callable[[Listing], Listing]) -> Entry:
    """A loop or branches with other bodies; an item as it is."""
    match entry:
        case Item():
            return entry
        case Loop():
            return dc.replace(entry, bodies=tuple(map(change, entry.bodies)))
        case Choice():
            return dc.replace(entry, branches=tuple(map(change, entry.branches)))
