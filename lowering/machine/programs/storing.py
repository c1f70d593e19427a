"""What of a program is kept in streaming memory, or only passes through an IPU on its way there."""

from __future__ import annotations

import collections

from lowering import ir
from lowering.machine.cost import Shape
from lowering.ops.storage import Storage
from lowering.units import HOST


def kept_places(program: ir.Program) -> dict[ir.Place, Storage]:
    """What is stored, under the names of loop variables and of branches' results too."""
    kept: dict[ir.Place, Storage] = {}
    _follow(program.body, kept)
    return kept


def _follow(sequence: ir.Sequence, kept: dict[ir.Place, Storage]) -> None:
    for node in sequence.steps:
        match node:
            case ir.Store():
                kept[node.kept, node.ipu] = node.storage
            case ir.Repeat() | ir.Pipeline() | ir.While():
                for carry in node.carry:
                    storage = kept.get((carry.initial, carry.ipu))
                    if storage is not None:
                        kept[carry.entering, carry.ipu] = kept[carry.final, carry.ipu] = storage
            case _:
                pass
        for body in ir.bodies(node):
            _follow(body.sequence, kept)
        if isinstance(node, ir.Switch):
            ends = (body.results for body in ir.bodies(node))
            for place, *ways in zip(ir.births(node), *ends, strict=True):
                storages = [kept[way] for way in ways if way in kept]
                if storages and len(storages) == len(ways):
                    kept[place] = storages[0]


def overwriting(program: ir.Program) -> set[ir.Place]:
    """Stored values that take the place of others: those of an older iteration, or other branch."""
    found: set[ir.Place] = set()
    for node in ir.walk(program.body):  # parents first: branches inside of loops
        match node:
            case ir.Repeat() | ir.Pipeline() | ir.While():
                found.update((carry.leaving, carry.ipu) for carry in node.carry)
            case ir.Switch():
                branches = ir.bodies(node)
                for place, *ways in zip(
                    ir.births(node), *(branch.results for branch in branches), strict=True
                ):
                    pairs = zip(ways, branches, strict=True)
                    made = [way for way, branch in pairs if way in born_in(branch)]
                    is_update = place in found or len(made) < len(ways)
                    found.update(made if is_update else made[1:])
            case _:
                pass
    return found


def born_in(body: ir.Body) -> set[ir.Place]:
    """The places at which the steps of a body leave values."""
    return {place for node in body.sequence.steps for place in ir.births(node)}


def kept_bytes(whole: Shape, storage: Storage, replicas: int) -> int:
    """What one replica keeps of a stored tensor."""
    return -(-whole.bytes // replicas) if storage.sharded else whole.bytes


def only_passing(program: ir.Program) -> set[ir.Place]:
    """Places of arguments that go straight to streaming memory, and of results from there."""
    readers: dict[ir.Place, list[ir.Node]] = collections.defaultdict(list)
    loads: set[ir.Place] = set()
    for node in ir.walk(program.body):
        if isinstance(node, ir.Load):
            loads.add((node.value, node.ipu))
        for place in ir.needs(node, lambda _: frozenset()):
            readers[place].append(node)
    stored = {
        place
        for place, nodes in readers.items()
        if place[0] in program.inputs and all(isinstance(n, ir.Store) for n in nodes)
    }
    leaving = {
        place
        for place in loads
        if all(isinstance(n, ir.Copy) and n.target == HOST for n in readers[place])
    }
    return stored | leaving
