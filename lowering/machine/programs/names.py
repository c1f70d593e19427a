"""Values that share a layout: the names of one loop variable, and of what is stored and loaded."""

from __future__ import annotations

from lowering.ir.program import Copy, Load, Pipeline, Program, Repeat, Store, While
from lowering.ir.tree import Place, walk
from lowering.machine.kernels.layouts import Laid
from lowering.units import HOST


class SharedLayouts:
    """How the values of a program lie, by place; names that mean one tensor share an entry.

    Args:
      program: whose values they are.
    """

    def __init__(self, program: Program) -> None:
        self._parent: dict[Place, Place] = {}
        self._laid: dict[Place, Laid] = {}
        for node in walk(program.body):
            match node:
                case Repeat() | Pipeline() | While():
                    for carry in node.carry:
                        self._join((carry.initial, carry.ipu), (carry.entering, carry.ipu))
                        self._join((carry.final, carry.ipu), (carry.entering, carry.ipu))
                case Load() | Store():
                    self._join((node.kept, node.ipu), (node.value, node.ipu))
                case Copy() if HOST not in (node.source, node.target):
                    # A clone keeps the tile of every element (docs/hardware.md, Tile mapping).
                    for value in node.values:
                        self._join((value, node.target), (value, node.source))
                case _:
                    pass

    def get(self, place: Place) -> Laid | None:
        """How a value lies; None if nobody has laid it out yet."""
        return self._laid.get(self._root(place))

    def settle(self, place: Place, laid: Laid) -> Laid:
        """Lays out a value, unless that has been done; gives how it lies."""
        return self._laid.setdefault(self._root(place), laid)

    def _root(self, place: Place) -> Place:
        root = place
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while place != root:
            self._parent[place], place = root, self._parent.get(place, place)
        return root

    def _join(self, one: Place, other: Place) -> None:
        first, second = self._root(one), self._root(other)
        if first != second:
            self._parent[first] = second
