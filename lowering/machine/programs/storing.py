"""What of a program is kept in streaming memory, or only passes through an IPU on its way there."""

from __future__ import annotations

from lowering import ir
from lowering.machine.cost import Shape
from lowering.ops.storage import Storage
from lowering.units import HOST


def in_streaming_memory(program: ir.Program) -> set[ir.Place]:
    """What is stored remotely, under the names of loop variables too."""
    stored: set[ir.Place] = set()
    for node in ir.walk(program.body):
        match node:
            case ir.Store() if node.storage.remote:
                stored.add((node.kept, node.ipu))
            case ir.Repeat() | ir.Pipeline() | ir.While():
                for carry in node.carry:
                    if (carry.initial, carry.ipu) in stored:
                        stored |= {(carry.entering, carry.ipu), (carry.final, carry.ipu)}
            case _:
                pass
    return stored


def kept_bytes(whole: Shape, storage: Storage, replicas: int) -> int:
    """What one replica keeps of a stored tensor."""
    return -(-whole.bytes // replicas) if storage.sharded else whole.bytes


def only_passing(program: ir.Program) -> set[ir.Place]:
    """Places of arguments that go straight to streaming memory, and of results from there."""
    readers: dict[ir.Place, list[ir.Node]] = {}
    loads: set[ir.Place] = set()
    for node in ir.walk(program.body):
        match node:
            case ir.Store():
                readers.setdefault((node.value, node.ipu), []).append(node)
            case ir.Load():
                loads.add((node.value, node.ipu))
            case ir.Copy():
                for value in node.values:
                    readers.setdefault((value, node.source), []).append(node)
            case ir.Execute():
                for value in node.reads:
                    readers.setdefault((value, node.ipu), []).append(node)
            case ir.Repeat() | ir.Pipeline() | ir.While():
                for carry in node.carry:
                    readers.setdefault((carry.initial, carry.ipu), []).append(node)
            case _:
                pass
    stored = {
        place
        for place, nodes in readers.items()
        if place[0] in program.inputs and all(isinstance(node, ir.Store) for node in nodes)
    }
    leaving = {
        place
        for place in loads
        if all(isinstance(n, ir.Copy) and n.target == HOST for n in readers.get(place, ()))
    }
    return stored | leaving
