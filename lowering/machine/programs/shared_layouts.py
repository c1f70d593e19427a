"""Values that share a layout: names of a loop variable, stored and loaded values, updates."""

from __future__ import annotations

import copy

from lowering import ir
from lowering.ground import HOST
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.programs.updates import Updates


class SharedLayouts:
    """The layouts of values on IPUs; names that mean one tensor share an entry.

    Args:
      program: whose values they are.
      updates: the results that take the memory of arguments.
    """

    def __init__(self, program: ir.Program, updates: Updates) -> None:
        self._parent: dict[ir.Place, ir.Place] = {}
        self._laid: dict[ir.Place, TensorLayout] = {}
        for node in ir.walk_nodes(program.body):
            match node:
                case ir.Repeat() | ir.Pipeline() | ir.While():
                    for carry in node.carry:
                        self._make_values_share_layout(
                            (carry.initial, carry.ipu), (carry.entering, carry.ipu)
                        )
                        self._make_values_share_layout(
                            (carry.final, carry.ipu), (carry.entering, carry.ipu)
                        )
                case ir.Load() | ir.Store():
                    self._make_values_share_layout((node.kept, node.ipu), (node.value, node.ipu))
                case ir.Copy() if HOST not in (node.source, node.target):
                    # A clone keeps the tile of every element (docs/hardware.md, Tile mapping).
                    for value in node.values:
                        self._make_values_share_layout((value, node.target), (value, node.source))
                case _:
                    pass
        for old, new in updates.items():
            self._make_values_share_layout(old, new)
        self._root = {place: self._representative_of(place) for place in tuple(self._parent)}

    def start_anew(self) -> SharedLayouts:
        """Returns the same names, of which none has a layout yet."""
        fresh = copy.copy(self)
        fresh._laid = {}
        return fresh

    def layout_on_ipu(self, value_on_ipu: ir.Place) -> TensorLayout | None:
        """Returns the layout of a value; None if it has none yet."""
        return self._laid.get(self._root.get(value_on_ipu, value_on_ipu))

    def set_default_layout(self, value_on_ipu: ir.Place, layout: TensorLayout) -> TensorLayout:
        """Sets the layout of a value, unless it has one; returns its layout."""
        return self._laid.setdefault(self._root.get(value_on_ipu, value_on_ipu), layout)

    def _representative_of(self, value_on_ipu: ir.Place) -> ir.Place:
        root = value_on_ipu
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while value_on_ipu != root:
            self._parent[value_on_ipu], value_on_ipu = (
                root,
                self._parent.get(value_on_ipu, value_on_ipu),
            )
        return root

    def _make_values_share_layout(self, first_value: ir.Place, second_value: ir.Place) -> None:
        first, second = self._representative_of(first_value), self._representative_of(second_value)
        if first != second:
            self._parent[first] = second
