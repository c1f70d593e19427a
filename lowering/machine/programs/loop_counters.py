"""The branch that each iteration of a loop takes, where only counters of the loop decide.

Optimizers that accumulate decide so when an update is due: `cond((step + 1) % count == 0, ...)`.
The deciding equations are run, iteration by iteration: scalars computed from literals and from loop
variables that are themselves computed so. Counters that come from outside are taken to begin at 0.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lowering import ir
from lowering.jaxprs import (
    EquationFinder,
    Jaxpr,
    JaxprEqn,
    Literal,
    bind_equation,
    body_of_call,
    dtype_name,
    equations_with_bodies,
    shape_of,
    sub_jaxprs,
)
from lowering.machine.kernels.iterations import BranchPerIteration
from lowering.ops import ControlFlow, is_control_flow

_MOST_STATES = 1024  # iterations that are run before the counters must have repeated a state
_LONGEST_LOOP = 1 << 20  # iterations of a loop: the branch of each of them is in memory

_BranchesTaken: TypeAlias = tuple[int, BranchPerIteration | None]
_Branches: TypeAlias = tuple[int, Any, int]  # identity, the name of the index, how many there are
_Equation: TypeAlias = tuple[JaxprEqn, list[Any], list[Any]]  # with the names of both sides


def find_counted_branches(program: ir.Program) -> CountedBranches:
    """Finds the branches that iterations take, in all loops that run a known number of times."""
    branches_by_key: dict[int, BranchPerIteration | None] = {}
    loops: dict[int, list[int]] = {}
    for loop, key, branches in _walk_loops(program):
        earlier = branches_by_key.get(key, branches)
        is_same = earlier is not None and branches is not None and np.array_equal(earlier, branches)
        branches_by_key[key] = branches if is_same else None  # one equation may be in several loops
        loops.setdefault(loop, []).append(key)
    known_branches = {key: turns for key, turns in branches_by_key.items() if turns is not None}
    branches_of_loops = {
        loop: tuple(known_branches[key] for key in keys if key in known_branches)
        for loop, keys in loops.items()
    }
    return CountedBranches(known_branches, branches_of_loops)


def _walk_loops(program: ir.Program) -> Iterator[tuple[int, int, BranchPerIteration | None]]:
    """Yields the loop, the branching equation, and the branches that iterations take."""
    has_choice = EquationFinder(lambda eqn: eqn.primitive.name == "cond")
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Repeat) and node.count is not None:
            if not any(_is_branching(inner, has_choice) for inner in ir.walk_nodes(node.body)):
                continue
            body = _Body()
            for carry in node.carry:
                body.avals[carry.entering] = program.avals[carry.entering]
            body.add_nodes(node.body)
            following = {carry.entering: carry.leaving for carry in node.carry}
            yield from (
                (id(node), *branches_taken)
                for branches_taken in body.run_counters(following, {}, node.count)
            )
        elif isinstance(node, ir.Execute):
            yield from ((id(node), *taken) for taken in _walk_kernel_loops(node.kernel.jaxpr.jaxpr))


def _is_branching(node: ir.Node, has_choice: EquationFinder) -> bool:
    """Returns whether a node branches, or a kernel has an equation that does."""
    if isinstance(node, ir.Execute):
        return has_choice(node.kernel.jaxpr.jaxpr)
    return isinstance(node, ir.Switch)


def _walk_kernel_loops(jaxpr: Jaxpr) -> Iterator[_BranchesTaken]:
    for eqn in equations_with_bodies(jaxpr):
        for body_jaxpr in sub_jaxprs(eqn):
            yield from _walk_kernel_loops(body_jaxpr)
        flow = ControlFlow.view_of_equation(eqn) if is_control_flow(eqn) else None
        if flow is not None and flow.is_loop and flow.trips is not None:
            body_jaxpr, constants = flow.bodies[-1].jaxpr, flow.constants[-1]
            body, first = _Body(), constants.stop - constants.start
            carried = eqn.invars[flow.carried]
            variables = body_jaxpr.invars[first : first + len(carried)]
            body.avals.update((variable, variable.aval) for variable in variables)
            body.add_jaxpr(body_jaxpr, {variable: variable for variable in body_jaxpr.invars})
            pairs = zip(variables, carried, strict=True)
            start = {var: atom.val for var, atom in pairs if isinstance(atom, Literal)}
            results = [body.name_of_atom(atom) for atom in body_jaxpr.outvars[: len(carried)]]
            yield from body.run_counters(
                dict(zip(variables, results, strict=True)), start, flow.trips
            )


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, Literal)


@dc.dataclass(frozen=True, slots=True, eq=False)
class CountedBranches:
    """The branches of loops that counters decide on.

    Attributes:
      branch_at_iteration: the branch that each iteration takes, by the identity of an equation or
        node.
      branches_in_loop: the same for all branches in a loop of the program, by the identity of the
        loop.
    """

    branch_at_iteration: Mapping[int, BranchPerIteration]
    branches_in_loop: Mapping[int, Sequence[BranchPerIteration]]


@dc.dataclass(slots=True)
class _Body:
    """The body of a loop as one list of equations, calls inlined; names are keys or literals.

    Attributes:
      avals: the avals of the loop variables.
      eqns: the equations, with the names that they read and write.
      maker_of: the equation that makes a name.
      alias_of: the name that stands for a variable of a jaxpr.
      branches: the equations and nodes that have branches.
    """

    avals: dict[Any, Any] = dc.field(default_factory=dict[Any, Any])
    eqns: list[_Equation] = dc.field(default_factory=list[Any])
    maker_of: dict[Any, int] = dc.field(default_factory=dict[Any, int])
    alias_of: dict[Any, Any] = dc.field(default_factory=dict[Any, Any])
    branches: list[_Branches] = dc.field(default_factory=list[Any])

    def name_of_atom(self, atom: Any) -> Any:
        """Returns the name that stands for an atom of the jaxpr that was inlined last."""
        return atom if _is_literal(atom) else self.alias_of.get(atom, atom)

    def add_nodes(self, body: ir.Sequence) -> None:
        """Adds the kernels and branches of a loop of the program, without their contents."""
        for node in ir.inline_tasks(body.steps):
            if isinstance(node, ir.Execute):
                jaxpr = node.kernel.jaxpr.jaxpr
                self.add_jaxpr(jaxpr, dict(zip(jaxpr.invars, node.reads, strict=True)))
                for atom, value in zip(jaxpr.outvars, node.writes, strict=True):
                    self.alias_of[value] = self.name_of_atom(atom)
            elif isinstance(node, ir.Switch):
                index = self.alias_of.get(node.index, node.index)
                self.branches.append((id(node), index, len(node.branches)))

    def add_jaxpr(self, jaxpr: Jaxpr, names: Mapping[Any, Any]) -> None:
        """Adds the equations of a jaxpr whose arguments have these names."""
        self.alias_of.update([(var, self.name_of_atom(name)) for var, name in names.items()])
        for eqn in jaxpr.eqns:
            reads, call = [self.name_of_atom(atom) for atom in eqn.invars], body_of_call(eqn)
            if call is not None and len(call.jaxpr.invars) == len(reads):
                self.add_jaxpr(call.jaxpr, dict(zip(call.jaxpr.invars, reads, strict=True)))
                results = [self.name_of_atom(atom) for atom in call.jaxpr.outvars]
            else:
                results = [(id(eqn), len(self.eqns), i) for i in range(len(eqn.outvars))]
                self.maker_of.update(dict.fromkeys(results, len(self.eqns)))
                self.eqns.append((eqn, reads, results))
                if eqn.primitive.name == "cond":
                    self.branches.append((id(eqn), reads[0], len(eqn.params["branches"])))
            self.alias_of.update(zip(eqn.outvars, results, strict=True))

    def run_counters(
        self, following: Mapping[Any, Any], start: Mapping[Any, Any], count: int
    ) -> Iterator[_BranchesTaken]:
        """Yields the branches that iterations take; None where more than counters decides.

        Args:
          following: the value of each loop variable in the next iteration.
          start: the initial values of some loop variables.
          count: how many iterations there are.
        """
        following = {name: self.name_of_atom(next_value) for name, next_value in following.items()}
        decided: list[_Branches] = []
        counters: set[Any] = set()
        numbers: set[int] = set()
        for branch in self.branches:
            variables, makers = set[Any](), set[int]()
            if self._is_made_by_counters(branch[1], following, variables, makers):
                decided.append(branch)
                counters |= variables
                numbers |= makers
            else:
                yield branch[0], None
        initial_values = {
            name: start.get(name, np.zeros((), dtype_name(self.avals[name]))) for name in counters
        }
        eqns = [self.eqns[i] for i in sorted(numbers)]
        yield from _simulate_counters(decided, eqns, following, initial_values, count)

    def _is_made_by_counters(
        self, name: Any, following: Mapping[Any, Any], counters: set[Any], makers: set[int]
    ) -> bool:
        """Returns whether counters alone make a value; adds these, and numbers of equations."""
        if _is_literal(name) or name in counters:
            return True
        if name in following:
            counters.add(name)
            scalar = shape_of(self.avals[name]) == ()
            return scalar and self._is_made_by_counters(
                following[name], following, counters, makers
            )
        i = self.maker_of.get(name)
        if i is None or i in makers:
            return i is not None
        eqn, reads, _ = self.eqns[i]
        makers.add(i)
        is_pure = not eqn.effects and not sub_jaxprs(eqn)
        return (
            is_pure
            and all(shape_of(var.aval) == () for var in eqn.outvars)
            and all(self._is_made_by_counters(read, following, counters, makers) for read in reads)
        )


def _simulate_counters(
    branches: Sequence[_Branches],
    eqns: Sequence[_Equation],
    following: Mapping[Any, Any],
    values: dict[Any, Any],
    count: int,
) -> Iterator[_BranchesTaken]:
    """Runs equations until the counters repeat a state, or to the last iteration."""

    def value_of_name(name: Any) -> Any:
        return name.val if _is_literal(name) else values[name]

    if count > _LONGEST_LOOP:
        yield from ((key, None) for key, _, _ in branches)
        return
    counters, branches_taken = tuple(values), list[list[int]]()
    iteration_of_state: dict[tuple[float, ...], int] = {}
    while branches and len(branches_taken) < count:
        state = tuple(float(values[name]) for name in counters)
        if state in iteration_of_state or len(branches_taken) == _MOST_STATES:
            break
        iteration_of_state[state] = len(branches_taken)
        for eqn, reads, results in eqns:
            values.update(
                zip(results, bind_equation(eqn, list(map(value_of_name, reads))), strict=True)
            )
        limits = ((int(value_of_name(index)), most) for _, index, most in branches)
        branches_taken.append([min(max(index, 0), most - 1) for index, most in limits])
        values = {name: value_of_name(following[name]) for name in counters}
    first = iteration_of_state.get(tuple(float(values[name]) for name in counters))
    if len(branches_taken) < count and first is None:
        yield from ((key, None) for key, _, _ in branches)
        return
    iteration_indices = np.arange(count)
    if first is not None:
        is_repeated = iteration_indices >= len(branches_taken)
        iteration_indices[is_repeated] = first + (iteration_indices[is_repeated] - first) % (
            len(branches_taken) - first
        )
    for i, (key, _, _) in enumerate(branches):
        yield key, np.array(branches_taken)[iteration_indices, i]
