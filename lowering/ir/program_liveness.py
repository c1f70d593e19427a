"""The lifetime of values: where they are written, who reads them, when they are dead."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import program as ir
from lowering.ir.program_nodes import (
    Place,
    bodies_of_node,
    inline_tasks,
    places_of_reads,
    places_of_writes,
    scalars_deciding_control_flow,
    values_read,
    values_written,
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
            scalars = scalars_deciding_control_flow(node) if self._homes is not None else ()
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


def find_overwritable_operands(
    body: ir.Sequence, results: Iterable[Place], donated: Iterable[ValueId]
) -> list[frozenset[Place]]:
    """Returns for each step the operands that its kernel may overwrite.

    These are values that one kernel has made, or that the caller has donated, that no other step
    than kernels, copies and the kernels of pipelines reads, and that nobody reads later, on any
    IPU: values on IPUs with the same devices may share a buffer. Each has the shape and dtype of a
    result of its own.

    Args:
      body: the steps of a whole program, or of a loop's body.
      results: the values that are read after the last step.
      donated: values from outside that the caller has given away.
    """
    own = set(donated)
    others: set[ValueId] = {value for value, _ in results}
    last_step: dict[ValueId, int] = {}
    for number, node in enumerate(body.steps):
        last_step.update(dict.fromkeys((*values_read(node), *values_written(node)), number))
        if isinstance(node, ir.Execute):
            jaxpr = node.kernel.jaxpr.jaxpr
            made = zip(node.writes, jaxpr.outvars, strict=True)
            own.update(v for v, var in made if var not in jaxpr.invars)  # not an operand itself
        elif isinstance(node, ir.Pipeline):
            others.update(_find_values_handed_on_by_pipeline(node))
        elif not isinstance(node, ir.Copy):
            others.update(values_read(node))
    return [
        _match_operands_with_results(node, {v for v in own - others if last_step.get(v) == number})
        if isinstance(node, ir.Execute)
        else frozenset[Place]()
        for number, node in enumerate(body.steps)
    ]


def find_overwritable_loop_variables(
    node: ir.Repeat, overwritable_initials: Collection[ValueId]
) -> set[ValueId]:
    """Returns the entering loop variables that an iteration may overwrite when it has read them.

    An infeed may end within the iteration; its error has the loop variables of that time.

    Args:
      node: the loop.
      overwritable_initials: the initial values that the loop may overwrite.
    """
    read: set[ValueId] = set()
    for step in reversed(inline_tasks(node.body.steps)):
        if any(isinstance(nested, ir.StreamIn) for nested in walk_nodes(ir.Sequence((step,)))):
            break
        read.update(values_read(step))
    return {c.entering for c in node.carry if c.initial in overwritable_initials} & read


def _find_values_handed_on_by_pipeline(node: ir.Pipeline) -> set[ValueId]:
    """Returns the values that others than kernels read in a pipeline, or that kernels hand on."""
    values = {c.initial for c in node.carry}
    for step in walk_nodes(node.body):
        if isinstance(step, ir.Execute):
            jaxpr = step.kernel.jaxpr.jaxpr
            operands = zip(step.reads, jaxpr.invars, strict=True)
            values.update(value for value, var in operands if var in jaxpr.outvars)
        elif not isinstance(step, (ir.Task, ir.Sequence)):
            values.update(values_read(step))
    return values


def _match_operands_with_results(node: ir.Execute, dying: Collection[ValueId]) -> frozenset[Place]:
    """Returns the dying operands that each have the type of a result of their own."""
    free = collections.Counter(map(_type_of_aval, node.kernel.jaxpr.out_avals))
    matched: list[Place] = []
    for value, aval in zip(node.reads, node.kernel.jaxpr.in_avals, strict=True):
        kind = _type_of_aval(aval)
        if value in dying and node.reads.count(value) == 1 and free[kind]:
            free[kind] -= 1
            matched.append((value, node.ipu))
    return frozenset(matched)


def _type_of_aval(aval: Any) -> tuple[Any, Any]:
    return aval.shape, aval.dtype


def queues_of_program(
    program: ir.Program, kind: type[ir.StreamIn] | type[ir.StreamOut]
) -> list[Any]:
    """Returns the queues that a program reads (`StreamIn`) or feeds (`StreamOut`), each once."""
    nodes = (node for node in walk_nodes(program.body) if isinstance(node, kind))
    return list(dict.fromkeys(node.queue for node in nodes))
