"""Which branch each iteration of a loop takes, where only counters of the loop decide.

So optimizers that accumulate say when an update is due: `cond((step + 1) % count == 0, ...)`. What
decides is run, iteration by iteration: scalars that are made of literals and of loop variables
which are themselves made so. Counters that come from outside are taken to begin at 0.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lowering import ir
from lowering.avals import dtype_name, shape_of
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.jaxpr import Jaxpr, JaxprEqn, Literal, bind_equation, call_body, sub_jaxprs
from lowering.machine.kernels.iterations import Turns

_MOST = 1024  # iterations that are run before the counters must have come round again
_LONGEST = 1 << 20  # iterations of a loop: what each of them takes is in memory

_Taken: TypeAlias = tuple[int, Turns | None]
_Branches: TypeAlias = tuple[int, Any, int]  # identity, the name of the index, how many there are
_Equation: TypeAlias = tuple[JaxprEqn, list[Any], list[Any]]  # with the names of both sides


def counted(program: ir.Program) -> Counted:
    """The branches that iterations take, of all loops that run a known number of times."""
    found: dict[int, Turns | None] = {}
    loops: dict[int, list[int]] = {}
    for loop, key, turns in _all(program):
        old = found.get(key, turns)
        alike = old is not None and turns is not None and np.array_equal(old, turns)
        found[key] = turns if alike else None  # one equation may be in several loops
        loops.setdefault(loop, []).append(key)
    turns_of = {key: turns for key, turns in found.items() if turns is not None}
    of_loops = {
        loop: tuple(turns_of[key] for key in keys if key in turns_of)
        for loop, keys in loops.items()
    }
    return Counted(turns_of, of_loops)


def _all(program: ir.Program) -> Iterator[tuple[int, int, Turns | None]]:
    """The loop, what has branches, and which ones are taken."""
    for node in ir.walk(program.body):
        if isinstance(node, ir.Repeat) and node.count is not None:
            body = _Body()
            for carry in node.carry:
                body.avals[carry.entering] = program.avals[carry.entering]
            body.nodes(node.body)
            following = {carry.entering: carry.leaving for carry in node.carry}
            yield from ((id(node), *taken) for taken in body.run(following, {}, node.count))
        elif isinstance(node, ir.Execute):
            yield from ((id(node), *taken) for taken in _in_kernel(node.kernel.jaxpr.jaxpr))


def _in_kernel(jaxpr: Jaxpr) -> Iterator[_Taken]:
    for eqn in jaxpr.eqns:
        for inner in sub_jaxprs(eqn):
            yield from _in_kernel(inner)
        flow = ControlFlow.of(eqn) if is_control_flow(eqn) else None
        if flow is not None and flow.is_loop and flow.trips is not None:
            inner, constants = flow.bodies[-1].jaxpr, flow.constants[-1]
            body, first = _Body(), constants.stop - constants.start
            carried = eqn.invars[flow.carried]
            variables = inner.invars[first : first + len(carried)]
            body.avals.update((variable, variable.aval) for variable in variables)
            body.jaxpr(inner, {variable: variable for variable in inner.invars})
            pairs = zip(variables, carried, strict=True)
            start = {var: atom.val for var, atom in pairs if isinstance(atom, Literal)}
            results = [body.name(atom) for atom in inner.outvars[: len(carried)]]
            yield from body.run(dict(zip(variables, results, strict=True)), start, flow.trips)


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, Literal)


@dc.dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Branches that counters decide on.

    Attributes:
      turns: which one each iteration takes, by the identity of an equation or node.
      loops: the same of what an iteration of a loop of the program runs, by that of the loop.
    """

    turns: Mapping[int, Turns]
    loops: Mapping[int, Sequence[Turns]]


@dc.dataclass(slots=True)
class _Body:
    """The body of a loop as one list of equations, calls opened; names are any keys, or literals.

    Attributes:
      avals: of the loop variables.
      eqns: with the names that they read and write.
      made: which of them makes a name.
      known: what else a name of a jaxpr is.
      branches: what has branches.
    """

    avals: dict[Any, Any] = dc.field(default_factory=dict[Any, Any])
    eqns: list[_Equation] = dc.field(default_factory=list[Any])
    made: dict[Any, int] = dc.field(default_factory=dict[Any, int])
    known: dict[Any, Any] = dc.field(default_factory=dict[Any, Any])
    branches: list[_Branches] = dc.field(default_factory=list[Any])

    def name(self, atom: Any) -> Any:
        """What stands for an atom of the jaxpr that was opened last."""
        return atom if _is_literal(atom) else self.known.get(atom, atom)

    def nodes(self, body: ir.Sequence) -> None:
        """The kernels and branches of a loop of the program; not what is inside of these."""
        for node in ir.opened(body.steps):
            if isinstance(node, ir.Execute):
                jaxpr = node.kernel.jaxpr.jaxpr
                self.jaxpr(jaxpr, dict(zip(jaxpr.invars, node.reads, strict=True)))
                for atom, value in zip(jaxpr.outvars, node.writes, strict=True):
                    self.known[value] = self.name(atom)
            elif isinstance(node, ir.Switch):
                index = self.known.get(node.index, node.index)
                self.branches.append((id(node), index, len(node.branches)))

    def jaxpr(self, jaxpr: Jaxpr, names: Mapping[Any, Any]) -> None:
        """Equations of a jaxpr whose arguments have these names."""
        self.known.update([(var, self.name(name)) for var, name in names.items()])
        for eqn in jaxpr.eqns:
            reads, call = [self.name(atom) for atom in eqn.invars], call_body(eqn)
            if call is not None and len(call.jaxpr.invars) == len(reads):
                self.jaxpr(call.jaxpr, dict(zip(call.jaxpr.invars, reads, strict=True)))
                results = [self.name(atom) for atom in call.jaxpr.outvars]
            else:
                results = [(id(eqn), len(self.eqns), i) for i in range(len(eqn.outvars))]
                self.made.update(dict.fromkeys(results, len(self.eqns)))
                self.eqns.append((eqn, reads, results))
                if eqn.primitive.name == "cond":
                    self.branches.append((id(eqn), reads[0], len(eqn.params["branches"])))
            self.known.update(zip(eqn.outvars, results, strict=True))

    def run(
        self, following: Mapping[Any, Any], start: Mapping[Any, Any], count: int
    ) -> Iterator[_Taken]:
        """The branches that iterations take; None where more than counters decides.

        Args:
          following: from each loop variable to what it is in the next iteration.
          start: what some begin with.
          count: how many iterations there are.
        """
        following = {name: self.name(after) for name, after in following.items()}
        decided: list[_Branches] = []
        counters: set[Any] = set()
        numbers: set[int] = set()
        for branch in self.branches:
            variables, makers = set[Any](), set[int]()
            if self._decides(branch[1], following, variables, makers):
                decided.append(branch)
                counters |= variables
                numbers |= makers
            else:
                yield branch[0], None
        begin = {
            name: start.get(name, np.zeros((), dtype_name(self.avals[name]))) for name in counters
        }
        eqns = [self.eqns[i] for i in sorted(numbers)]
        yield from _turns(decided, eqns, following, begin, count)

    def _decides(
        self, name: Any, following: Mapping[Any, Any], counters: set[Any], makers: set[int]
    ) -> bool:
        """Whether counters alone make a value; adds these, and the numbers of equations."""
        if _is_literal(name) or name in counters:
            return True
        if name in following:
            counters.add(name)
            scalar = shape_of(self.avals[name]) == ()
            return scalar and self._decides(following[name], following, counters, makers)
        i = self.made.get(name)
        if i is None or i in makers:
            return i is not None
        eqn, reads, _ = self.eqns[i]
        makers.add(i)
        plain = not eqn.effects and next(sub_jaxprs(eqn), None) is None
        return (
            plain
            and all(shape_of(var.aval) == () for var in eqn.outvars)
            and all(self._decides(read, following, counters, makers) for read in reads)
        )


def _turns(
    branches: Sequence[_Branches],
    eqns: Sequence[_Equation],
    following: Mapping[Any, Any],
    values: dict[Any, Any],
    count: int,
) -> Iterator[_Taken]:
    """Runs equations until the counters come round again, or to the last iteration."""

    def value(name: Any) -> Any:
        return name.val if _is_literal(name) else values[name]

    if count > _LONGEST:
        yield from ((key, None) for key, _, _ in branches)
        return
    counters, taken = tuple(values), list[list[int]]()
    seen: dict[tuple[float, ...], int] = {}
    while branches and len(taken) < count:
        state = tuple(float(values[name]) for name in counters)
        if state in seen or len(taken) == _MOST:
            break
        seen[state] = len(taken)
        for eqn, reads, results in eqns:
            values.update(zip(results, bind_equation(eqn, list(map(value, reads))), strict=True))
        limits = ((int(value(index)), most) for _, index, most in branches)
        taken.append([min(max(index, 0), most - 1) for index, most in limits])
        values = {name: value(following[name]) for name in counters}
    first = seen.get(tuple(float(values[name]) for name in counters))
    if len(taken) < count and first is None:
        yield from ((key, None) for key, _, _ in branches)
        return
    turns = np.arange(count)
    if first is not None:
        late = turns >= len(taken)
        turns[late] = first + (turns[late] - first) % (len(taken) - first)
    for i, (key, _, _) in enumerate(branches):
        yield key, np.array(taken)[turns, i]
