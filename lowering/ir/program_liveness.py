"""The lifetime of values: where they are written, who reads them, when they are dead."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Iterable, Mapping
from typing import Any

from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import program as ir
from lowering.ir.program_nodes import (
    Place,
    bodies_of_node,
    places_of_reads,
    places_of_writes,
    steering_scalars,
    values_read,
    walk_nodes,
)


class PlacesOfReads:
    """A cache of the values, with their IPUs, that each node and its bodies read.

    Args:
      homes: the IPU on which each value is written. If given, the scalars that steer a branch count
        as read there: the host looks at them on any IPU.
    """

    def __init__(self, homes: Mapping[ValueId, IpuId] | None = None) -> None:
        self._homes = homes
        self._known: dict[int, frozenset[Place]] = {}

    def __call__(self, node: ir.Node) -> frozenset[Place]:
        """Returns the values, with their IPUs, that one node reads."""
        if id(node) not in self._known:
            scalars = steering_scalars(node) if self._homes is not None else ()
            read = ((value, (self._homes or {})[value]) for value in scalars)
            self._known[id(node)] = frozenset((*places_of_reads(node, self), *read))
        return self._known[id(node)]


def ipu_of_each_value(program: ir.Program) -> dict[ValueId, IpuId]:
    """Returns the IPU on which each value is written."""
    ipu_of_value: dict[ValueId, IpuId] = dict.fromkeys(program.inputs, HOST)
    ipu_of_value.update((value, HOST) for value, _ in program.constants)
    for node in walk_nodes(program.body):
        if not isinstance(node, (ir.Copy, ir.Receive)):
            ipu_of_value.update(places_of_writes(node))
        ipu_of_value.update(
            argument for body in bodies_of_node(node) for argument in body.arguments
        )
    return ipu_of_value


def find_dead_values_after_steps(
    body: ir.Sequence,
    results: Iterable[Place],
    reads_of_node: PlacesOfReads,
    entering: Iterable[Place] = (),
) -> list[list[Place]]:
    """Returns, for each step of a body, the values of the body that nothing later reads."""
    values_of_body = {
        value_on_ipu for node in body.steps for value_on_ipu in places_of_writes(node)
    } | set(entering)
    live = set(results)
    dead: list[list[Place]] = []
    for node in reversed(body.steps):
        touched = set(reads_of_node(node)) | set(places_of_writes(node))
        dead.append([place for place in touched if place in values_of_body and place not in live])
        live |= touched
    return dead[::-1]


def find_values_carried_by_one_loop(program: ir.Program) -> set[ValueId]:
    """Returns the values that a single loop reads once, as a loop variable, at the top level."""
    count_of_carried: collections.Counter[ValueId] = collections.Counter()
    read_otherwise = set(program.outputs)
    for node in program.body.steps:
        if isinstance(node, (ir.Repeat, ir.Pipeline)):
            count_of_carried.update(c.initial for c in node.carry)
            read_otherwise.update(values_read(dc.replace(node, carry=())))
        elif not isinstance(node, ir.Copy):
            read_otherwise.update(values_read(node))
    return {
        value
        for value, count in count_of_carried.items()
        if count == 1 and value not in read_otherwise
    }


def queues_of_program(
    program: ir.Program, kind: type[ir.StreamIn] | type[ir.StreamOut]
) -> list[Any]:
    """Returns the queues that a program reads (`StreamIn`) or feeds (`StreamOut`), each once."""
    nodes = (node for node in walk_nodes(program.body) if isinstance(node, kind))
    return list(dict.fromkeys(node.queue for node in nodes))
