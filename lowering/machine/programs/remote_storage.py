"""Values of a program in streaming memory, and values that an IPU only passes on to it."""

from __future__ import annotations

import collections

from lowering import ir
from lowering.ground import HOST
from lowering.machine.cost import Shape
from lowering.ops import Storage

STREAMING_MEMORY_MOVES = {
    "load": "load from streaming memory",
    "store": "store to streaming memory",
}
"""What moves of a value are called, by the kind of their node."""


def find_stored_values(program: ir.Program) -> dict[ir.Place, Storage]:
    """Finds stored values, under the names of loop variables and of branches' results too."""
    storage_of_value: dict[ir.Place, Storage] = {}
    _follow_stored_values(program.body, storage_of_value)
    return storage_of_value


def _follow_stored_values(sequence: ir.Sequence, storage_of_value: dict[ir.Place, Storage]) -> None:
    for node in sequence.steps:
        match node:
            case ir.Store():
                storage_of_value[node.kept, node.ipu] = node.storage
            case ir.Repeat() | ir.Pipeline() | ir.While():
                for carry in node.carry:
                    storage = storage_of_value.get((carry.initial, carry.ipu))
                    if storage is not None:
                        storage_of_value[carry.entering, carry.ipu] = storage_of_value[
                            carry.final, carry.ipu
                        ] = storage
            case _:
                pass
        for body in ir.bodies_of_node(node):
            _follow_stored_values(body.sequence, storage_of_value)
        if isinstance(node, ir.Switch):
            ends = (body.results for body in ir.bodies_of_node(node))
            for result, *branch_results in zip(ir.places_of_writes(node), *ends, strict=True):
                storages = [
                    storage_of_value[branch_result]
                    for branch_result in branch_results
                    if branch_result in storage_of_value
                ]
                if storages and len(storages) == len(branch_results):
                    storage_of_value[result] = storages[0]


def find_overwriting_values(program: ir.Program) -> set[ir.Place]:
    """Finds stored values that overwrite others, of an older iteration or another branch."""
    overwriting_values: set[ir.Place] = set()
    for node in ir.walk_nodes(program.body):  # parents first: branches inside of loops
        match node:
            case ir.Repeat() | ir.Pipeline() | ir.While():
                overwriting_values.update((carry.leaving, carry.ipu) for carry in node.carry)
            case ir.Switch():
                branches = ir.bodies_of_node(node)
                for result, *branch_results in zip(
                    ir.places_of_writes(node), *(branch.results for branch in branches), strict=True
                ):
                    pairs = zip(branch_results, branches, strict=True)
                    made_in_branch = [
                        branch_result
                        for branch_result, branch in pairs
                        if branch_result in values_born_in(branch)
                    ]
                    is_update = result in overwriting_values or len(made_in_branch) < len(
                        branch_results
                    )
                    overwriting_values.update(made_in_branch if is_update else made_in_branch[1:])
            case _:
                pass
    return overwriting_values


def values_born_in(body: ir.Body) -> set[ir.Place]:
    """Returns the values that the steps of a body leave, with their IPUs."""
    return {
        value_on_ipu for node in body.sequence.steps for value_on_ipu in ir.places_of_writes(node)
    }


def bytes_stored_per_replica(shape: Shape, storage: Storage, replicas: int) -> int:
    """Returns the bytes that one replica holds of a stored tensor."""
    return -(-shape.bytes // replicas) if storage.sharded else shape.bytes


def find_values_passed_straight_to_storage(program: ir.Program) -> set[ir.Place]:
    """Finds arguments that go straight to streaming memory, and results that come from there."""
    readers: dict[ir.Place, list[ir.Node]] = collections.defaultdict(list)
    loads: set[ir.Place] = set()
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Load):
            loads.add((node.value, node.ipu))
        for value_on_ipu in ir.places_of_reads(node, lambda _: frozenset()):
            readers[value_on_ipu].append(node)
    inputs = frozenset(program.inputs)
    stored_arguments = {
        place
        for place, nodes in readers.items()
        if place[0] in inputs and all(isinstance(n, ir.Store) for n in nodes)
    }
    loaded_results = {
        place
        for place in loads
        if all(isinstance(n, ir.Copy) and n.target == HOST for n in readers[place])
    }
    return stored_arguments | loaded_results
