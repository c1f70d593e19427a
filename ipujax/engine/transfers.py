"""What the part of a program that one process runs has from the others, and gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from ipujax.distribution.exchange import Exchange, Sent
from ipujax.engine.placement import PerReplica, Placement
from ipujax.engine.storage import load
from lowering import HOST, ir, part_of

if TYPE_CHECKING:
    from ipujax.engine.loops import Values
    from ipujax.engine.replay import Machine
    from ipujax.host.session import Session


def part_here(program: ir.Program, placement: Placement) -> ir.Program:
    """The part of a program that this process runs; all of it, if its IPUs are all here."""
    if not placement.processes:
        return program
    return part_of(program, placement.processes, placement.among.index)


def exchange_of(program: ir.Program, placement: Placement) -> Exchange | None:
    """What the processes of a program tell one another; None if its IPUs are all here."""
    if not placement.processes:
        return None
    nodes = [node for node in ir.walk(program.body) if isinstance(node, ir.StreamOut)]
    sent = [
        Sent(
            node.queue,  # pyright: ignore[reportArgumentType]
            placement.processes[node.ipu],
            node.structure,
            tuple(program.avals[value] for value in node.reads),
        )
        for node in nodes
    ]
    return Exchange(placement.among, sent, placement.replicas)


def send(machine: Machine, node: ir.Send) -> Callable[[Values, Session], None]:
    """Hands values to another process."""
    del machine
    places = [(value, node.source) for value in node.values]

    def run(values: Values, session: Session) -> None:
        arrays = [_array(load(values[place])) for place in places]
        session.exchanged.send(node.process, node.channel, arrays)

    return run


def receive(machine: Machine, node: ir.Receive) -> Callable[[Values, Session], None]:
    """Takes values from another process."""
    placement, program = machine.placement, machine.program
    places = [(value, node.target) for value in node.values]
    is_own = [value not in machine.shared and placement.replicas > 1 for value in node.values]
    structs = [
        placement.struct(program.avals[value], 0, 0 if own else None)
        for value, own in zip(node.values, is_own, strict=True)
    ]

    def arrived(array: jax.Array, own: bool) -> jax.Array | PerReplica:
        if node.target != HOST:
            return placement.to_device(PerReplica(array) if own else array, node.target)
        return PerReplica(array) if own else array

    def run(values: Values, session: Session) -> None:
        arrays = session.exchanged.receive(node.process, node.channel, structs)
        values.update(zip(places, map(arrived, arrays, is_own), strict=True))

    return run


def _array(value: Any) -> Any:
    return value.array if isinstance(value, PerReplica) else value
