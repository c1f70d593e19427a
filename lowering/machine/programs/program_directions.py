"""The direction of the parts of a program: forward, backward, or the update after both.

The name stacks of JAX's derivatives give the direction, the outermost one of several, and so do the
kinds of pipeline tasks: recomputation in a backward task belongs to the backward pass. All other
directions follow from the data flow:

* an equation that reads a result of a backward pass is update: clipping, reductions, optimizers;
* one that a forward pass reads, or that reads a result of one, is forward;
* one that only the update reads is update, such as a learning rate;
* all others are forward.

A move has the direction of the maker of its data, or, if there is none, of its readers. A loop's
iterations are alike: values that one passes to the next do not count. In a program without backward
passes only the tasks of its pipelines have a direction.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from lowering import ir, marks
from lowering.ground import ValueId
from lowering.jaxprs import Atom, Jaxpr, JaxprEqn, Literal, body_of_call, name_stack, sub_jaxprs
from lowering.machine.kernels.directions import Direction, Directions
from lowering.ops import ControlFlow, TaskRole, is_control_flow

_OF_TASKS: dict[TaskRole, Direction] = {TaskRole.FORWARD: "forward", TaskRole.UPDATE: "update"}
_FORWARD, _BACKWARD, _UPDATE = 1, 2, 4  # bits: passes that values come from, or serve
_STEMS = {"forward": _FORWARD, "backward": _BACKWARD, "update": _BACKWARD, None: 0}
_NEEDS = {"forward": _FORWARD, "backward": _FORWARD, "update": _UPDATE, None: 0}

_Atoms: TypeAlias = Iterable[Atom]


@dc.dataclass(slots=True, eq=False)
class _FlowPoint:
    """An equation, or several that have the same direction.

    Attributes:
      reads: numbers of the values that it reads.
      writes: numbers of the values that it writes.
      passes: whether it is no equation, and its results are its operands by another name.
      direction: its direction, or None until `settle_directions` has found it.
      stems: the passes that its operands come from.
    """

    reads: Sequence[int]
    writes: Sequence[int]
    passes: bool = False
    direction: Direction | None = None
    stems: int = 0


_Tree: TypeAlias = "_FlowPoint | Direction | tuple[_Tree, ...] | None"
"""`Directions` whose points may have no direction yet."""


class ProgramDirections:
    """The directions of a program's kernels and moves.

    Args:
      program: the whole program.
    """

    def __init__(self, program: ir.Program) -> None:
        graph = _FlowGraph(len(program.avals))
        graph.add_sequence(program.body, None)
        graph.settle_directions()
        self._graph = graph
        self._kernels: dict[int, Directions] = {
            node: _merge_equal_directions(tree) for node, tree in graph.trees.items()
        }

    def directions_of_kernel(self, node: ir.Execute) -> Directions:
        """Returns the directions of the equations of a kernel."""
        return self._kernels[id(node)]

    def direction_of_values(
        self, values: Iterable[ValueId], node: ir.Node | None = None
    ) -> Direction | None:
        """Returns the direction of values that move, by a node if one is given."""
        task_direction = self._graph.within.get(id(node))
        return task_direction or self._graph.direction_of_numbers(values)


def _merge_equal_directions(tree: _Tree) -> Directions:
    """Returns the directions of a tree; equal ones are merged into one."""
    if isinstance(tree, _FlowPoint):
        return tree.direction
    if not isinstance(tree, tuple):
        return tree
    parts: list[Any] = list(map(_merge_equal_directions, tree))
    are_equal = len(set(parts)) == 1 and not any(isinstance(part, tuple) for part in parts)
    return parts[0] if are_equal else tuple(parts)


class _FlowGraph:
    """The data flow of a program, with bodies that hold derivatives inlined.

    Args:
      count: how many values the program has; further numbers are those of values in kernels.
    """

    def __init__(self, count: int) -> None:
        self.trees: dict[int, _Tree] = {}
        self.within: dict[int, Direction] = {}  # of nodes inside of tasks
        self._points: list[_FlowPoint] = []
        self._makers: dict[int, _FlowPoint] = {}
        self._needed: list[int] = []
        self._differentiates: dict[int, bool] = {}
        self._count = count
        self._goes_back = False

    # The program

    def add_sequence(self, body: ir.Sequence, task: Direction | None) -> None:
        for node in body.steps:
            if task is not None:
                self.within[id(node)] = task
            self._add_node(node, task)

    def _add_node(self, node: ir.Node, task: Direction | None) -> None:
        match node:
            case ir.Execute() | ir.HostCall():
                self._add_kernel(node, task)
            case ir.Store():
                self._add_passed_values([node.value], [node.kept])
            case ir.Load():
                self._add_passed_values([node.kept], [node.value])
            case ir.Repeat() | ir.Pipeline() | ir.While():
                self._add_loop(node, task)
            case ir.Switch():
                for branch in node.branches:
                    self.add_sequence(branch.body, task)
                    self._add_passed_values(branch.results, node.writes)
            case ir.Task():
                self.add_sequence(node.body, _OF_TASKS.get(node.spec.kind, "backward"))
            case ir.Sequence():
                self.add_sequence(node, task)
            case _:
                pass

    def _add_loop(self, node: ir.Repeat | ir.Pipeline | ir.While, task: Direction | None) -> None:
        for carry in node.carry:
            self._add_passed_values([carry.initial], [carry.entering])
        for slice_ in node.slices if isinstance(node, ir.Repeat) else ():
            self._add_passed_values([slice_.stacked], [slice_.element])
        for body in ir.bodies_of_node(node):
            self.add_sequence(body.sequence, task)
        for carry in node.carry:
            self._add_passed_values([carry.leaving], [carry.final])
        for stack in node.stacks if isinstance(node, ir.Repeat) else ():
            self._add_passed_values([stack.element], [stack.stacked])

    def _add_kernel(self, node: ir.Execute | ir.HostCall, task: Direction | None) -> None:
        if task is not None:
            self._add_point(_FlowPoint(node.reads, node.writes, direction=task))
            self.trees[id(node)] = task
            return
        jaxpr = node.kernel.jaxpr.jaxpr
        number_of_var: dict[Any, int] = dict(zip(jaxpr.invars, node.reads, strict=True))
        self.trees[id(node)] = self._add_equations(jaxpr, number_of_var)
        self._pass_results(jaxpr.outvars, number_of_var, node.writes)

    # Jaxprs

    def _add_equations(self, jaxpr: Jaxpr, number_of_var: dict[Any, int]) -> _Tree:
        trees: list[_Tree] = [self._add_equation(eqn, number_of_var) for eqn in jaxpr.eqns]
        return tuple(trees)

    def _add_equation(self, eqn: JaxprEqn, number_of_var: dict[Any, int]) -> _Tree:
        direction = marks.derivative_pass(name_stack(eqn))
        if direction is None and any(map(self._holds_derivatives, sub_jaxprs(eqn))):
            body = body_of_call(eqn)
            if body is not None and len(body.jaxpr.invars) == len(eqn.invars):
                return (self._add_body(body.jaxpr, eqn.invars, eqn.outvars, number_of_var),)
            if is_control_flow(eqn):
                return self._add_control_flow(ControlFlow.view_of_equation(eqn), number_of_var)
        reads, writes = (
            self._number_atoms(eqn.invars, number_of_var),
            self._number_atoms(eqn.outvars, number_of_var),
        )
        return self._add_point(_FlowPoint(reads, writes, direction=direction))

    def _add_control_flow(self, flow: ControlFlow, number_of_var: dict[Any, int]) -> _Tree:
        trees: list[_Tree] = []
        for number, body in enumerate(flow.bodies):
            reads = flow.select_body_operands(number, flow.eqn.invars)
            writes = [] if flow.is_condition(number) else flow.eqn.outvars
            trees.append(self._add_body(body.jaxpr, reads, writes, number_of_var))
        return tuple(trees)

    def _add_body(
        self,
        jaxpr: Jaxpr,
        reads: Sequence[Atom],
        writes: Sequence[Any],
        number_of_var: dict[Any, int],
    ) -> _Tree:
        """Adds a body that reads and writes values of the jaxpr around it."""
        number_in_body: dict[Any, int] = {}
        for var, atom in zip(jaxpr.invars, reads, strict=True):
            self._add_passed_values(
                self._number_atoms([atom], number_of_var), self._number_atoms([var], number_in_body)
            )
        tree = self._add_equations(jaxpr, number_in_body)
        if writes:
            self._pass_results(
                jaxpr.outvars, number_in_body, self._number_atoms(writes, number_of_var)
            )
        return tree

    def _pass_results(
        self, atoms: _Atoms, number_of_var: dict[Any, int], writes: Sequence[int]
    ) -> None:
        """Connects the results of a body with their numbers outside."""
        for atom, write in zip(atoms, writes, strict=True):
            self._add_passed_values(self._number_atoms([atom], number_of_var), [write])

    def _holds_derivatives(self, jaxpr: Jaxpr) -> bool:
        if id(jaxpr) not in self._differentiates:
            self._differentiates[id(jaxpr)] = any(
                marks.derivative_pass(name_stack(eqn)) is not None
                or any(map(self._holds_derivatives, sub_jaxprs(eqn)))
                for eqn in jaxpr.eqns
            )
        return self._differentiates[id(jaxpr)]

    def _number_atoms(self, atoms: _Atoms, number_of_var: dict[Any, int]) -> list[int]:
        """Returns the numbers of atoms that are no literals; gives new ones where needed."""
        numbers: list[int] = []
        for atom in atoms:
            if not isinstance(atom, Literal):
                if atom not in number_of_var:
                    number_of_var[atom], self._count = self._count, self._count + 1
                numbers.append(number_of_var[atom])
        return numbers

    # Points

    def _add_point(self, point: _FlowPoint) -> _FlowPoint:
        self._points.append(point)
        self._makers.update(dict.fromkeys(point.writes, point))
        return point

    def _add_passed_values(self, reads: Sequence[int], writes: Sequence[int]) -> None:
        for read, write in zip(reads, writes, strict=False):
            self._points.append(_FlowPoint((read,), (write,), passes=True))
            if read in self._makers:
                self._makers.setdefault(write, self._makers[read])

    def settle_directions(self) -> None:
        """Finds the direction of every point: one walk forward for the origins, and one back."""
        stems, self._needed = [0] * self._count, [0] * self._count
        for point in self._points:
            for read in point.reads:
                point.stems |= stems[read]
            for write in point.writes:
                stems[write] |= point.stems | _STEMS[point.direction]
        self._goes_back = any(point.direction == "backward" for point in self._points)
        for point in reversed(self._points):
            needing_passes = 0
            for write in point.writes:
                needing_passes |= self._needed[write]
            if not point.passes:
                point.direction = point.direction or _infer_direction(point.stems, needing_passes)
                needing_passes |= _NEEDS[point.direction]
            for read in point.reads:
                self._needed[read] |= needing_passes
        if not self._goes_back:
            self._clear_directions()

    def _clear_directions(self) -> None:
        """Clears all directions but those of tasks, as there is no backward pass."""
        for point in self._points:
            point.direction = None
        self.trees = {n: tree if isinstance(tree, str) else None for n, tree in self.trees.items()}

    def direction_of_numbers(self, values: Iterable[int]) -> Direction | None:
        """Returns the direction of the first value that has a maker, or else of a reader."""
        if not self._goes_back:
            return None
        needing_passes = 0
        for value in values:
            if value in self._makers:
                return self._makers[value].direction
            needing_passes |= self._needed[value]
        return "update" if needing_passes == _UPDATE else "forward"


def _infer_direction(stems: int, needing_passes: int) -> Direction:
    """Infers a direction that no name stack and no task gives."""
    if stems & _BACKWARD:
        return "update"
    is_separate = not (stems & _FORWARD or needing_passes & _FORWARD)
    return "update" if is_separate and needing_passes & _UPDATE else "forward"
