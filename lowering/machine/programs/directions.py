"""Which way the work of a program goes: forward, backward, or the update after both.

Derivatives of JAX say so in name stacks, the outermost one of several, and tasks of pipelines by
their kind: what is computed again in a backward task belongs to the backward pass. All else follows
from what is computed of what:

* what needs something of a backward pass is the update: clipping, reductions, optimizers;
* what a forward pass needs, or what needs something of one, is forward;
* what only the update needs is the update, such as a learning rate;
* whatever is left is forward.

What moves belongs to what has made it, or, if nothing has, to what needs it. A loop's iterations
are alike: what one leaves to the next does not count. In a program without backward passes nothing
has a direction but the tasks of its pipelines.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from lowering import ir, marks
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.jaxpr import Atom, Jaxpr, JaxprEqn, Literal, call_body, name_stack, sub_jaxprs
from lowering.machine.kernels.directions import Direction, Directions
from lowering.ops.tasks import Kind
from lowering.units import ValueId

_OF_TASKS: dict[Kind, Direction] = {Kind.FORWARD: "forward", Kind.UPDATE: "update"}
_FORWARD, _BACKWARD, _UPDATE = 1, 2, 4  # bits: what values stem from, and what needs them
_STEMS = {"forward": _FORWARD, "backward": _BACKWARD, "update": _BACKWARD, None: 0}
_NEEDS = {"forward": _FORWARD, "backward": _FORWARD, "update": _UPDATE, None: 0}

_Atoms: TypeAlias = Iterable[Atom]


@dc.dataclass(slots=True, eq=False)
class _Point:
    """An equation, or several that go the same way.

    Attributes:
      reads: numbers of values.
      writes: the same.
      passes: whether it is none, and its results are its operands by another name.
      direction: what is known of it; after `settle`, what it is.
      stems: what its operands stem from.
    """

    reads: Sequence[int]
    writes: Sequence[int]
    passes: bool = False
    direction: Direction | None = None
    stems: int = 0


_Tree: TypeAlias = "_Point | Direction | tuple[_Tree, ...] | None"
"""`Directions` that are not settled yet."""


class ProgramDirections:
    """The directions of a program's kernels, and of what moves.

    Args:
      program: the whole program.
    """

    def __init__(self, program: ir.Program) -> None:
        graph = _Graph(len(program.avals))
        graph.sequence(program.body, None)
        graph.settle()
        self._graph = graph
        self._kernels = {node: _settled(tree) for node, tree in graph.trees.items()}

    def kernel(self, node: ir.Execute) -> Directions:
        """Of the equations of a kernel, run here."""
        return self._kernels[id(node)]

    def values(self, values: Iterable[ValueId], node: ir.Node | None = None) -> Direction | None:
        """Of values that move, by a node if one is given."""
        within = self._graph.within.get(id(node))
        return within or self._graph.of_values(values)


def _settled(tree: _Tree) -> Any:
    """Directions of which equal ones are one."""
    if isinstance(tree, _Point):
        return tree.direction
    if not isinstance(tree, tuple):
        return tree
    parts = tuple(map(_settled, tree))
    alike = len(set(parts)) == 1 and not isinstance(parts[0], tuple)
    return parts[0] if alike else parts


class _Graph:
    """What is computed of what, bodies opened where they hold derivatives.

    Args:
      count: how many values the program has; further numbers are those of values in kernels.
    """

    def __init__(self, count: int) -> None:
        self.trees: dict[int, _Tree] = {}
        self.within: dict[int, Direction] = {}  # of nodes inside of tasks
        self._points: list[_Point] = []
        self._makers: dict[int, _Point] = {}
        self._needed: list[int] = []
        self._differentiates: dict[int, bool] = {}
        self._count = count
        self._goes_back = False

    # The program

    def sequence(self, body: ir.Sequence, task: Direction | None) -> None:
        for node in body.steps:
            if task is not None:
                self.within[id(node)] = task
            self._node(node, task)

    def _node(self, node: ir.Node, task: Direction | None) -> None:
        match node:
            case ir.Execute() | ir.HostCall():
                self._kernel(node, task)
            case ir.Store():
                self._pass([node.value], [node.kept])
            case ir.Load():
                self._pass([node.kept], [node.value])
            case ir.Repeat() | ir.Pipeline() | ir.While():
                self._loop(node, task)
            case ir.Switch():
                for branch in node.branches:
                    self.sequence(branch.body, task)
                    self._pass(branch.results, node.writes)
            case ir.Task():
                self.sequence(node.body, _OF_TASKS.get(node.spec.kind, "backward"))
            case ir.Sequence():
                self.sequence(node, task)
            case _:
                pass

    def _loop(self, node: ir.Repeat | ir.Pipeline | ir.While, task: Direction | None) -> None:
        for carry in node.carry:
            self._pass([carry.initial], [carry.entering])
        for slice_ in node.slices if isinstance(node, ir.Repeat) else ():
            self._pass([slice_.stacked], [slice_.element])
        for body in ir.bodies(node):
            self.sequence(body.sequence, task)
        for carry in node.carry:
            self._pass([carry.leaving], [carry.final])
        for stack in node.stacks if isinstance(node, ir.Repeat) else ():
            self._pass([stack.element], [stack.stacked])

    def _kernel(self, node: ir.Execute | ir.HostCall, task: Direction | None) -> None:
        if task is not None:
            self._add(_Point(node.reads, node.writes, direction=task))
            self.trees[id(node)] = task
            return
        jaxpr = node.kernel.jaxpr.jaxpr
        known: dict[Any, int] = dict(zip(jaxpr.invars, node.reads, strict=True))
        self.trees[id(node)] = self._equations(jaxpr, known)
        self._enter(jaxpr.outvars, known, node.writes)

    # Jaxprs

    def _equations(self, jaxpr: Jaxpr, known: dict[Any, int]) -> _Tree:
        trees: list[_Tree] = [self._equation(eqn, known) for eqn in jaxpr.eqns]
        return tuple(trees)

    def _equation(self, eqn: JaxprEqn, known: dict[Any, int]) -> _Tree:
        direction = marks.derivative(name_stack(eqn))
        if direction is None and any(map(self._holds_derivatives, sub_jaxprs(eqn))):
            body = call_body(eqn)
            if body is not None and len(body.jaxpr.invars) == len(eqn.invars):
                return (self._body(body.jaxpr, eqn.invars, eqn.outvars, known),)
            if is_control_flow(eqn):
                return self._control_flow(ControlFlow.of(eqn), known)
        reads, writes = self._numbers(eqn.invars, known), self._numbers(eqn.outvars, known)
        return self._add(_Point(reads, writes, direction=direction))

    def _control_flow(self, flow: ControlFlow, known: dict[Any, int]) -> _Tree:
        trees: list[_Tree] = []
        for number, body in enumerate(flow.bodies):
            reads = flow.arguments(number, flow.eqn.invars)
            writes = [] if flow.is_condition(number) else flow.eqn.outvars
            trees.append(self._body(body.jaxpr, reads, writes, known))
        return tuple(trees)

    def _body(
        self, jaxpr: Jaxpr, reads: Sequence[Atom], writes: Sequence[Any], known: dict[Any, int]
    ) -> _Tree:
        """A body that reads and writes values of what is around it."""
        inside: dict[Any, int] = {}
        for var, atom in zip(jaxpr.invars, reads, strict=True):
            self._pass(self._numbers([atom], known), self._numbers([var], inside))
        tree = self._equations(jaxpr, inside)
        if writes:
            self._enter(jaxpr.outvars, inside, self._numbers(writes, known))
        return tree

    def _enter(self, atoms: _Atoms, known: dict[Any, int], writes: Sequence[int]) -> None:
        """What a body gives has other numbers outside."""
        for atom, write in zip(atoms, writes, strict=True):
            self._pass(self._numbers([atom], known), [write])

    def _holds_derivatives(self, jaxpr: Jaxpr) -> bool:
        if id(jaxpr) not in self._differentiates:
            self._differentiates[id(jaxpr)] = any(
                marks.derivative(name_stack(eqn)) is not None
                or any(map(self._holds_derivatives, sub_jaxprs(eqn)))
                for eqn in jaxpr.eqns
            )
        return self._differentiates[id(jaxpr)]

    def _numbers(self, atoms: _Atoms, known: dict[Any, int]) -> list[int]:
        """Of those that are no literals; new ones for what is not known yet."""
        numbers: list[int] = []
        for atom in atoms:
            if not isinstance(atom, Literal):
                if atom not in known:
                    known[atom], self._count = self._count, self._count + 1
                numbers.append(known[atom])
        return numbers

    # Points

    def _add(self, point: _Point) -> _Point:
        self._points.append(point)
        self._makers.update(dict.fromkeys(point.writes, point))
        return point

    def _pass(self, reads: Sequence[int], writes: Sequence[int]) -> None:
        for read, write in zip(reads, writes, strict=False):
            self._points.append(_Point((read,), (write,), passes=True))
            if read in self._makers:
                self._makers.setdefault(write, self._makers[read])

    def settle(self) -> None:
        """Gives every point its direction: once forward for what stems from what, and back."""
        stems, self._needed = [0] * self._count, [0] * self._count
        for point in self._points:
            for read in point.reads:
                point.stems |= stems[read]
            for write in point.writes:
                stems[write] |= point.stems | _STEMS[point.direction]
        self._goes_back = any(point.direction == "backward" for point in self._points)
        for point in reversed(self._points):
            needed = 0
            for write in point.writes:
                needed |= self._needed[write]
            if not point.passes:
                point.direction = point.direction or _direction(point.stems, needed)
                needed |= _NEEDS[point.direction]
            for read in point.reads:
                self._needed[read] |= needed
        if not self._goes_back:
            self._forget()

    def _forget(self) -> None:
        """Without a backward pass, only tasks have directions."""
        for point in self._points:
            point.direction = None
        self.trees = {n: tree if isinstance(tree, str) else None for n, tree in self.trees.items()}

    def of_values(self, values: Iterable[int]) -> Direction | None:
        """Of the first of the values that something makes, or of what needs one."""
        if not self._goes_back:
            return None
        needed = 0
        for value in values:
            if value in self._makers:
                return self._makers[value].direction
            needed |= self._needed[value]
        return "update" if needed == _UPDATE else "forward"


def _direction(stems: int, needed: int) -> Direction:
    """Of what no name stack and no task tells."""
    if stems & _BACKWARD:
        return "update"
    apart = not (stems & _FORWARD or needed & _FORWARD)
    return "update" if apart and needed & _UPDATE else "forward"
