"""An index of a program's nodes and equations, read once for all rules."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from lowering import add_caller_frames, dtype_name, ir, jaxpr, schedules, size_in_bytes

_Node = TypeVar("_Node", bound=ir.Node)
_Counts = collections.Counter[str | None]
"""Elements by queue, and micro-batches under None."""


class ProgramIndex:
    """The nodes and equations of a program, indexed for queries.

    Attributes:
      program: the indexed program.
      nodes: all nodes, parents before children, and how often each runs in a call; loops without
        a known count run once.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.nodes = tuple(_walk_with_run_counts(program.body, 1))

    def nodes_of_kind(self, *kinds: type[_Node]) -> list[_Node]:
        """Returns the nodes of some kinds."""
        return [node for node, _ in self.nodes if isinstance(node, kinds)]

    @functools.cached_property
    def pipelines(self) -> list[ir.Pipeline]:
        """The pipelines of the program."""
        return self.nodes_of_kind(ir.Pipeline)

    @functools.cached_property
    def first_pipeline_schedule(self) -> tuple[schedules.Schedule, int] | None:
        """The first pipeline's schedule, and how often it runs in a call.

        Copies of stages are stages of their own, as their tasks in the program are.
        """
        for node, times in self.nodes:
            if isinstance(node, ir.Pipeline):
                return schedules.spread_copies(node.schedule), times
        return None

    @functools.cached_property
    def can_be_rescheduled(self) -> bool:
        """Whether another schedule could run the tasks: no pipeline has copies of stages."""
        return all(len(node.schedule.copies) == 1 for node in self.pipelines)

    @functools.cached_property
    def elements_per_call(self) -> int:
        """The elements that one replica takes in a call from the infeed that supplies most.

        Without infeeds, the micro-batches of its pipelines. Loops whose trip count depends on
        values count once; of several branches, the one that reads most counts.
        """
        counts = _count_elements_by_queue(self.program.body)
        infeed_counts = [count for queue, count in counts.items() if queue is not None]
        return max(infeed_counts, default=counts[None])

    @functools.cached_property
    def batch_size(self) -> int | None:
        """The rows of each element of that infeed: what all arrays of one begin their shapes with.

        None where they differ, where an array has no dimensions, and without infeeds.
        """
        counts = _count_elements_by_queue(self.program.body)
        node = max(
            self.nodes_of_kind(ir.StreamIn), key=lambda node: counts[node.queue.name], default=None
        )
        if node is None:
            return None
        axis = 0 if node.count is None else 1  # elements of several are stacked
        rows = {self.program.avals[value].shape[axis : axis + 1] for value in node.writes}
        return next(iter(rows))[0] if len(rows) == 1 and () not in rows else None

    @functools.cached_property
    def equations(self) -> list[jaxpr.JaxprEqn]:
        """The equations of the program; those of a library carry the line of their caller."""
        todo: list[tuple[jaxpr.Jaxpr, jaxpr.JaxprEqn | None]] = [
            (node.kernel.jaxpr.jaxpr, None) for node in self.nodes_of_kind(ir.Execute)
        ]
        equations: list[jaxpr.JaxprEqn] = []
        while todo:
            body, caller = todo.pop()
            equations_of_body = [
                add_caller_frames(called_eqn, caller, body) for called_eqn in body.eqns
            ]
            equations += equations_of_body
            todo += [
                (sub_jaxpr, eqn) for eqn in equations_of_body for sub_jaxpr in jaxpr.sub_jaxprs(eqn)
            ]
        return equations

    @functools.cached_property
    def dtypes_by_primitive(self) -> Mapping[tuple[str, str], set[str]]:
        """The dtypes of the operands of every primitive, by its name and line."""
        dtypes: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
        for eqn in self.equations:
            operands = dtypes[eqn.primitive.name, jaxpr.user_line(eqn)]
            operands.update(dtype_name(atom.aval) for atom in eqn.invars)
        return dtypes

    def bytes_of_values(self, values: Iterable[ir.ValueId]) -> int:
        """Returns the total bytes of some values."""
        return sum(size_in_bytes(self.program.avals[value]) for value in values)

    def bytes_by_dtype(self, values: Iterable[int]) -> collections.Counter[str]:
        """Returns the total bytes of some values by dtype."""
        sizes: collections.Counter[str] = collections.Counter()
        for value in values:
            aval = self.program.avals[value]
            sizes[dtype_name(aval)] += size_in_bytes(aval)
        return sizes

    def dtypes_of_values(self, values: Iterable[ir.ValueId]) -> set[str]:
        """Returns the dtypes of some values."""
        return {dtype_name(self.program.avals[value]) for value in values}


def _trip_count(node: ir.Node) -> int:
    if isinstance(node, ir.Pipeline):
        return node.schedule.micro_batches
    count = node.count if isinstance(node, ir.Repeat) else 1
    return 1 if count is None else count


def _walk_with_run_counts(body: ir.Sequence, times: int) -> Iterator[tuple[ir.Node, int]]:
    for node in body.steps:
        yield node, times
        for child_body in ir.bodies_of_node(node):
            yield from _walk_with_run_counts(child_body.sequence, times * _trip_count(node))


def _count_elements_by_queue(body: ir.Sequence) -> _Counts:
    elements: _Counts = collections.Counter()
    for node in body.steps:
        if isinstance(node, ir.StreamIn):
            elements[node.queue.name] += node.count or 1
            continue
        child_counts: _Counts = collections.Counter()
        for counts in (
            _count_elements_by_queue(child_body.sequence) for child_body in ir.bodies_of_node(node)
        ):
            child_counts = (
                child_counts | counts if isinstance(node, ir.Switch) else child_counts + counts
            )
        if isinstance(node, ir.Pipeline):
            child_counts[None] += 1
        elements.update({key: count * _trip_count(node) for key, count in child_counts.items()})
    return elements
