"""Keeps what is stored away for as long as possible: loads stand before their first reader."""

from __future__ import annotations

import dataclasses as dc

from lowering import ir
from lowering.units import ValueId


def load_late(program: ir.Program) -> ir.Program:
    """Moves loads to where their values are read, and stores to where theirs are made.

    Before: the steps of a body are in some order that keeps all dependencies.
    After:  a load stands just before the first step that reads its value, a store just behind the
            step that makes its own, so that few stored values are on the tiles at the same time.
    """
    return dc.replace(program, body=_sequence(program.body))


def _sequence(body: ir.Sequence) -> ir.Sequence:
    steps = [ir.with_bodies(node, lambda inner: _sequence(inner.sequence)) for node in body.steps]
    made = {value for node in steps for value in ir.writes(node)}
    stores: dict[ValueId, list[ir.Store]] = {}
    for node in steps:
        if isinstance(node, ir.Store) and node.value in made:
            stores.setdefault(node.value, []).append(node)
    waiting: dict[ValueId, ir.Load] = {}
    placed: list[ir.Node] = []

    def place(node: ir.Node) -> None:
        for value in ir.reads(node):
            if value in waiting:
                place(waiting.pop(value))
        placed.append(node)
        for value in ir.writes(node):
            for store in stores.get(value, ()):
                place(store)

    for node in steps:
        if isinstance(node, ir.Load):
            waiting[node.value] = node
        elif not (isinstance(node, ir.Store) and node.value in stores):
            place(node)
    while waiting:
        place(waiting.pop(next(iter(waiting))))
    return ir.Sequence(tuple(placed))
