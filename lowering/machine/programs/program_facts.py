"""What the model asks of a program whatever the chip and its options, each found once."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from lowering import ir
from lowering.ground import HOST, ValueId
from lowering.machine.kernels.known_kernels import KnownKernels
from lowering.machine.kernels.listing import shape_of_aval
from lowering.machine.programs.line_costs import ValueMakers
from lowering.machine.programs.loop_counters import CountedBranches, find_counted_branches
from lowering.machine.programs.memory_steps import MemorySteps
from lowering.machine.programs.remote_storage import (
    find_overwriting_values,
    find_stored_values,
    find_values_passed_straight_to_storage,
)
from lowering.machine.programs.shared_layouts import SharedLayouts
from lowering.machine.programs.updates import Updates, find_loop_updates, find_updates
from lowering.machine.programs.value_names import Names, find_value_names
from lowering.ops import Storage


class ValueWords(NamedTuple):
    """A value in words.

    Attributes:
      type: its shape and dtype.
      maker: the word for the operation that makes it, or "".
      scope: the named scopes around that, or "".
    """

    type: str
    maker: str
    scope: str


class ProgramFacts:
    """The facts about a program.

    Args:
      program: the whole program.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.reads = ir.PlacesOfReads()
        self._updates: dict[frozenset[int], Updates] = {}
        self._shared_layouts: dict[frozenset[int], SharedLayouts] = {}
        self._memory_steps: dict[frozenset[tuple[ir.Place, ir.Place]], MemorySteps] = {}
        self._names: dict[object, Names] = {}
        self._words: dict[ValueId, ValueWords] = {}

    @functools.cached_property
    def makers(self) -> ValueMakers:
        """The equations that make its values."""
        return ValueMakers(self.program)

    @functools.cached_property
    def counted(self) -> CountedBranches:
        """The branches that counters of its loops decide on."""
        return find_counted_branches(self.program)

    @functools.cached_property
    def stored(self) -> Mapping[ir.Place, Storage]:
        """The stored values."""
        return find_stored_values(self.program)

    @functools.cached_property
    def passing(self) -> Collection[ir.Place]:
        """The values that IPUs only pass on to streaming memory, or from there."""
        return find_values_passed_straight_to_storage(self.program)

    @functools.cached_property
    def overwriting(self) -> Collection[ir.Place]:
        """The stored values that overwrite others, of an older iteration or another branch."""
        return find_overwriting_values(self.program)

    @functools.cached_property
    def loop_updates(self) -> Updates:
        """The values of an iteration that take the memory of those that entered it."""
        return find_loop_updates(self.program)

    @functools.cached_property
    def places(self) -> Collection[ir.Place]:
        """Every pair of a value and an IPU that holds it."""
        nodes = list(ir.walk_nodes(self.program.body))
        places = {place for node in nodes for place in ir.places_of_writes(node)}
        places.update(
            place for node in nodes for body in ir.bodies_of_node(node) for place in body.arguments
        )
        return {place for place in places if place[1] != HOST}

    def updates_with(self, donated: Collection[int]) -> Updates:
        """Returns the results that take the memory of arguments; see `find_updates`."""
        key = frozenset(donated)
        if key not in self._updates:
            self._updates[key] = find_updates(self.program, key)
        return self._updates[key]

    def shared_layouts_with(self, donated: Collection[int]) -> SharedLayouts:
        """Returns the values that share a layout, none of which has one yet."""
        key = frozenset(donated)
        if key not in self._shared_layouts:
            self._shared_layouts[key] = SharedLayouts(self.program, self.updates_with(donated))
        return self._shared_layouts[key]

    def memory_steps_with(self, updates: Updates) -> MemorySteps:
        """Returns the steps of each body, if these values take the memory of others."""
        key = frozenset(updates.items())
        if key not in self._memory_steps:
            makers = self.makers.equation_that_makes
            self._memory_steps[key] = MemorySteps(self.reads, makers, updates)
        return self._memory_steps[key]

    def names_with(self, arguments: Mapping[int, str], results: Sequence[str]) -> Names:
        """Returns the user's names of values; see `find_value_names`."""
        key = tuple(arguments.items()), tuple(results)
        if key not in self._names:
            self._names[key] = find_value_names(self.program, arguments, results)
        return self._names[key]

    def describe_value(self, value: ValueId) -> ValueWords:
        """Returns a value in words."""
        words = self._words.get(value)
        if words is None:
            type_ = shape_of_aval(self.program.avals[value]).text
            words = self._words[value] = ValueWords(type_, *self.makers.describe_maker(value))
        return words


class KnownParts:
    """What models of a program, under several options and with changes, share.

    Attributes:
      kernels: the kernels that were modelled.
    """

    def __init__(self) -> None:
        self.kernels = KnownKernels()
        self._facts: ProgramFacts | None = None

    def facts_of(self, program: ir.Program) -> ProgramFacts:
        """Returns the facts about a program; those of the first one are kept."""
        if self._facts is None:
            self._facts = ProgramFacts(program)
        return self._facts if self._facts.program is program else ProgramFacts(program)
