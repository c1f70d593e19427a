"""The contents of a kernel: operations, loops and branches, in lists of numbered values."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from lowering import marks
from lowering.jaxprs import JaxprEqn, call_path, names_of_calling_functions, user_line
from lowering.machine.cost import Operation, Shape
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.iterations import BranchPerIteration
from lowering.machine.labels import label_operations
from lowering.ops import user_ops, word_of_user_op

Block: TypeAlias = tuple[str, int]
"""An outlined function, and the number of one of its calls."""


class Signature:
    """A key with a hash that is computed once.

    Args:
      key: the key.
    """

    __slots__ = ("_hash", "_key")

    def __init__(self, key: Hashable) -> None:
        self._key, self._hash = key, hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Signature) and self._key == other._key)


@functools.lru_cache(maxsize=1 << 14)
def _share_signature(signature: Signature) -> Signature:
    """Returns the first of equal signatures, so that few comparisons look into them."""
    return signature


@dc.dataclass(frozen=True, eq=False)
class Item:
    """Operations that run as one: an equation, or a fused chain of elementwise ones.

    Attributes:
      operations: the operations that run; the results of the last are the item's.
      reads: the values that it reads, each operand of each operation; None for literals and for
        what another operation of the chain gives.
      writes: the values that it writes.
      eqn: the (last) equation, for its line; None for a constant.
      backward: whether JAX has transposed it.
      scope: the named scopes around it, as `blocks/attention`, or "".
      direction: the pass that it belongs to; None in programs without a backward pass.
      functions: names of the functions around it that are called as a whole, outermost first.
      block: the outlined function around it, and which of its calls; None if there is none.
      fuses_lines: whether elementwise operations of other lines may run with it.
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
    fuses_lines: bool = True

    @functools.cached_property
    def name(self) -> str:
        """The names of its primitives, or the name that the user gave to his own operation."""
        custom = user_ops.name_of_user_op(self.eqn) if self.eqn is not None else None
        return custom or " ".join(operation.name for operation in self.operations)

    @functools.cached_property
    def label(self) -> str:
        """The name that people use for the operation."""
        custom = word_of_user_op(self.eqn) if self.eqn is not None else None
        if custom:
            return custom
        return label_operations(
            self.operations, (*self.functions, *names_of_calling_functions(self.eqn)), self.scope
        )

    @functools.cached_property
    def origin(self) -> str:
        """The user's `file:line`, or ""."""
        return user_line(self.eqn) if self.eqn is not None else ""

    @functools.cached_property
    def distinct_reads(self) -> tuple[int, ...]:
        """The values that it reads, each once, without literals."""
        return tuple(dict.fromkeys(without_literals(self.reads)))

    @functools.cached_property
    def read_pattern(self) -> tuple[int | None, ...]:
        """For each operand, which of the distinct values it is; None for a literal."""
        position = {value: i for i, value in enumerate(self.distinct_reads)}
        return tuple(None if value is None else position[value] for value in self.reads)

    @functools.cached_property
    def signature(self) -> Signature:
        """What it has in common with the items that reports count together with it."""
        return _share_signature(
            Signature(
                (
                    self.operations,
                    self.backward,
                    self.direction,
                    self.origin,
                    call_path(self.eqn),
                    self.scope,
                    self.label,
                )
            )
        )

    @functools.cached_property
    def exact_title(self) -> str:
        """The exact name in reports: the primitives and the first result."""
        result = self.operations[-1].results
        title = f"{self.name} {result[0].text}" if result else self.name
        return f"{title}, backward" if self.backward else title


@dc.dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop inside a kernel.

    Attributes:
      bodies: the listings of one iteration: the body, after a condition if there is one.
      trips: how often; None if only values tell.
      reads: the values of its operands outside, in the order of `inner`.
      inner: for each body, the index of the loop's operand that each of its operands is.
      carried: pairs (operand of the loop, result of the last body) that are one buffer.
      writes: its results: those of the last body, stacked ones after carried ones.
      direction: the direction of its own work, without its bodies.
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
    def trip_count_or_one(self) -> int:
        """The number of iterations; 1 if only values tell."""
        return 1 if self.trips is None else self.trips


@dc.dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Branches inside a kernel, of which one runs; all read the same.

    Attributes:
      branch_of_iteration: the branch that each iteration of the loop around it takes; None if
        only values tell.
    """

    branches: tuple[Listing, ...]
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    eqn: JaxprEqn
    branch_of_iteration: BranchPerIteration | None = None

    def branch_taken(self, iteration: int | None) -> int | None:
        """Returns the branch that an iteration takes; None if only values tell."""
        return (
            None
            if iteration is None or self.branch_of_iteration is None
            else int(self.branch_of_iteration[iteration])
        )


Entry: TypeAlias = Item | Loop | Choice


@dc.dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A kernel: its operands, its items and its results.

    Attributes:
      shapes: the shape of every value: of the operands, and of all that items write.
      operands: the values it starts with.
      results: the values it ends with; None for a literal.
      items: the operations, loops and branches, in order.
    """

    shapes: tuple[Shape, ...]
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    items: tuple[Entry, ...]


def user_line_of_entry(entry: Entry) -> str:
    """Returns the user's `file:line` of an entry, or ""."""
    return entry.origin if isinstance(entry, Item) else user_line(entry.eqn)


def without_literals(reads: Iterable[int | None]) -> list[int]:
    """Returns the values that are read, without the literals."""
    return [value for value in reads if value is not None]


def transform_bodies(listing: Listing, change: Callable[[Listing], Listing]) -> Listing:
    """Returns the listing with `change` applied to the bodies of its loops and branches."""
    return dc.replace(
        listing, items=tuple(_transform_entry(entry, change) for entry in listing.items)
    )


def assign_scope(entry: Entry, backward: bool, scope: str, block: Block | None = None) -> Entry:
    """Marks an entry, and all in its bodies, as part of a backward pass, a scope and a block.

    Args:
      entry: an entry that has only its own marks.
      backward: whether it is in the backward pass.
      scope: the scopes around it.
      block: the outlined function around it, and which of its calls.
    """

    def assign_body(body: Listing) -> Listing:
        items = tuple(assign_scope(entry, backward, scope, block) for entry in body.items)
        return dc.replace(body, items=items)

    if isinstance(entry, Item):
        full_scope = marks.join_user_scopes(scope, entry.scope)
        backward, block = entry.backward or backward, entry.block or block
        return dc.replace(entry, backward=backward, scope=full_scope, block=block)
    return _transform_entry(entry, assign_body)


def _transform_entry(entry: Entry, change: Callable[[Listing], Listing]) -> Entry:
    """Applies `change` to the bodies of a loop or of branches; returns an item as it is."""
    match entry:
        case Item():
            return entry
        case Loop():
            return dc.replace(entry, bodies=tuple(map(change, entry.bodies)))
        case Choice():
            return dc.replace(entry, branches=tuple(map(change, entry.branches)))
