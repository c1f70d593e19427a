"""The move of loads to right before their first reader, so that values stay stored for long."""

from __future__ import annotations

import dataclasses as dc

from lowering import ir
from lowering.ground import ValueId


def load_late(program: ir.Program) -> ir.Program:
    """Moves loads to where their values are read, and stores to where theirs are made.

    Before: the steps of a body are in some order that keeps all dependencies.
    After:  a load stands just before the first step that reads its value, a store just behind the
            step that makes its own, so that few stored values are on the tiles at the same time.
    """
    return dc.replace(program, body=_delay_loads_in_steps(program.body))


def _delay_loads_in_steps(body: ir.Sequence) -> ir.Sequence:
    steps = [
        ir.rewrite_bodies(node, lambda inner: _delay_loads_in_steps(inner.sequence))
        for node in body.steps
    ]
    made = {value for node in steps for value in ir.values_written(node)}
    stores: dict[ValueId, list[ir.Store]] = {}
    for node in steps:
        if isinstance(node, ir.Store) and node.value in made:
            stores.setdefault(node.value, []).append(node)
    value_of_stored = {
        stored: value
        for value, nodes in stores.items()
        for node in nodes
        for stored in ir.values_written(node)
    }
    delayed_loads: dict[ValueId, ir.Load] = {}
    ordered: list[ir.Node] = []

    def append_with_loads(node: ir.Node) -> None:
        for read_value in ir.values_read(node):
            # What is stored of a loaded value is there once that is loaded.
            value = value_of_stored.get(read_value, read_value)
            if value in delayed_loads:
                append_with_loads(delayed_loads.pop(value))
        ordered.append(node)
        for value in ir.values_written(node):
            for store in stores.get(value, ()):
                append_with_loads(store)

    for node in steps:
        if isinstance(node, ir.Load):
            delayed_loads[node.value] = node
        elif not (isinstance(node, ir.Store) and node.value in stores):
            append_with_loads(node)
    while delayed_loads:
        append_with_loads(delayed_loads.pop(next(iter(delayed_loads))))
    return ir.Sequence(tuple(ordered))
