"""Values that share a layout: the names of a loop variable, what is stored and loaded, updates."""

from __future__ import annotations

from lowering import ir
from lowering.machine.kernels.layouts import Laid
from lowering.machine.programs.updates import Updates
from lowering.units import HOST


class SharedLayouts:
    """How the values of a program lie, by place; names that mean one tensor share an entry.

    Args:
      program: whose values they are.
      updates: which results go to the places of which arguments.
    """

    def __init__(self, program: ir.Program, updates: Updates) -> None:
        self._parent: dict[ir.Place, ir.Place] = {}
        self._laid: dict[ir.Place, Laid] = {}
        for node in ir.walk(program.body):
            match node:
                case ir.Repeat() | ir.Pipeline() | ir.While():
                    for carry in node.carry:
                        self._join((carry.initial, carry.ipu), (carry.entering, carry.ipu))
                        self._join((carry.final, carry.ipu), (carry.entering, carry.ipu))
                case ir.Load() | ir.Store():
                    self._join((node.kept, node.ipu), (node.value, node.ipu))
                case ir.Copy() if HOST not in (node.source, node.target):
                    # A clone keeps the tile of every element (docs/hardware.md, Tile mapping).
                    for value in node.values:
                        self._join((value, node.target), (value, node.source))
                case _:
                    pass
        for old, new in updates.items():
            self._join(old, new)

    def get(self, place: ir.Place) -> Laid | None:
        """How a value lies; None if nobody has laid it out yet."""
        return self._laid.get(self._root(place))

    def settle(self, place: ir.Place, laid: Laid) -> Laid:
        """Lays out a value, unless that has been done; gives how it lies."""
        return self._laid.setdefault(self._root(place), laid)

    def _root(self, place: ir.Place) -> ir.Place:
        root = place
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while place != root:
            self._parent[place], place = root, self._parent.get(place, place)
        return root

    def _join(self, one: ir.Place, other: ir.Place) -> None:
        first, second = self._root(one), self._root(other)
        if first != second:
            self._parent[first] = second
