"""Decides which equations of a placed body run together, and in which order.

An equation's level is the number of times that data had to change IPU before it. Equations of
one IPU and one level become one kernel; kernels of one level share no value, so they may overlap.
Control flow that is split, queue operations and host calls are steps of their own.

What works on values from streaming memory is cut further, into parts that share scalars only, so
that one value (of an optimizer's state, say) can be loaded, worked on and stored after the other.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.avals import size_in_bytes
from lowering.equations import variables
from lowering.jaxpr import Atom, JaxprEqn, Var, is_ordered, name_stack
from lowering.marks import joined, read
from lowering.ops.storage import load_p, store_p
from lowering.ops.streams import dequeue_p, enqueue_p
from lowering.ops.tasks import is_task
from lowering.passes.place import Home, PlacedBody
from lowering.units import HOST, IpuId

# Primitives that are steps of their own wherever they stand.
_STEPS = (dequeue_p, enqueue_p, load_p, store_p)

_SCALAR = 8  # bytes that link no parts


@dc.dataclass(slots=True)
class Group:
    """Equations that run together: one kernel's, or a single step of its own."""

    level: int
    order: int
    home: Home
    eqns: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])
    index: int = -1
    outside: str | None = None
    part: Var | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether the group is a kernel, and not a step of its own."""
        return self.index < 0


def group_equations(placed: PlacedBody, enclosing: str) -> tuple[list[Group], set[Var]]:
    """Groups the equations of a body.

    Args:
      placed: the body; every equation has a home.
      enclosing: the name stack of the equation that the body belongs to.

    Returns:
      One group per kernel or step, in an order that keeps all dependencies, and the variables that
      are read outside the group that makes them.
    """
    grouper = _Grouper(placed, enclosing)
    grouper.run()
    groups = sorted(grouper.groups, key=lambda group: (group.level, group.order))
    return groups, grouper.shared_variables()


@dc.dataclass(frozen=True, slots=True)
class _Waiting:
    """An equation that makes constants only, and joins the kernel that reads them first."""

    index: int
    eqn: JaxprEqn
    home: IpuId


class _Grouper:
    """One body being grouped."""

    def __init__(self, placed: PlacedBody, enclosing: str):
        self.placed, self.enclosing = placed, enclosing
        self.group_of: dict[Var, Group] = {}
        self.kernels: dict[tuple[int, IpuId, Var | None, str | None], Group] = {}
        self.groups: list[Group] = []
        self.last_ordered: Group | None = None
        self.last_task: Group | None = None
        self.waiting: dict[Var, _Waiting] = {}
        # What needs no element would otherwise be a kernel of its own, in front of its readers.
        eqns = placed.jaxpr.jaxpr.eqns
        self.first_level = int(any(eqn.primitive in (dequeue_p, load_p) for eqn in eqns))
        self.part_of = _parts(eqns) if any(map(_loads_remotely, eqns)) else {}

    def run(self) -> None:
        for index, eqn in enumerate(self.placed.jaxpr.jaxpr.eqns):
            self.add(index, eqn)
        self.release(variables(self.placed.jaxpr.jaxpr.outvars))

    def add(self, index: int, eqn: JaxprEqn) -> None:
        home = self.placed.homes[index]
        alone = index in self.placed.bodies or eqn.primitive in _STEPS
        kernel_home = None if alone or home == HOST else home
        operands = variables(eqn.invars)
        if kernel_home is not None and self.can_wait(eqn, operands, kernel_home):
            waiting = _Waiting(index, eqn, kernel_home)
            self.waiting.update((var, waiting) for var in eqn.outvars)
            return
        # What waits on another IPU cannot join the reader, nor can anything if that is no kernel.
        others = [v for v in operands if v in self.waiting and self.waiting[v].home != kernel_home]
        self.release(others)
        group = self.group(self.level(eqn, kernel_home), home, index if alone else -1, eqn)
        self.release(operands, group)
        group.eqns.append(eqn)
        if is_ordered(eqn):
            self.last_ordered = group
        if is_task(eqn):
            self.last_task = group
        self.group_of.update((var, group) for var in eqn.outvars)

    def can_wait(self, eqn: JaxprEqn, operands: Sequence[Var], home: IpuId) -> bool:
        """Whether an equation makes constants only: it then joins the kernel that reads them."""
        waiting = (var in self.waiting and self.waiting[var].home == home for var in operands)
        return not eqn.effects and all(waiting)

    def release(self, wanted: Sequence[Var], into: Group | None = None) -> None:
        """Puts what waits of these variables into a kernel; if none is given, an early one."""
        for waiting in self.behind(wanted):
            eqn, group = waiting.eqn, into
            if group is None:
                level = max((g.level for g in self.producers(eqn.invars)), default=0)
                group = self.group(level, waiting.home, -1, eqn)
            group.eqns.append(eqn)
            for made in eqn.outvars:
                self.waiting.pop(made, None)
                self.group_of[made] = group

    def behind(self, wanted: Sequence[Var]) -> list[_Waiting]:
        """What waits and is needed for these variables, in the order of the body."""
        needed: dict[int, _Waiting] = {}
        asked = list(wanted)
        while asked:
            waiting = self.waiting.get(asked.pop())
            if waiting is not None and waiting.index not in needed:
                needed[waiting.index] = waiting
                asked.extend(variables(waiting.eqn.invars))
        return [needed[index] for index in sorted(needed)]

    def producers(self, atoms: Sequence[Atom]) -> list[Group]:
        """The groups whose results these operands are, or are made of where they still wait."""
        sources = variables(atoms)
        for waiting in self.behind(sources):
            sources += variables(waiting.eqn.invars)
        return [self.group_of[var] for var in sources if var in self.group_of]

    def level(self, eqn: JaxprEqn, home: Home) -> int:
        """One more than the producers' highest, except for producers in kernels of `home`."""
        before = self.producers(eqn.invars)
        if is_ordered(eqn) and self.last_ordered is not None:
            before.append(self.last_ordered)
        if is_task(eqn) and self.last_task is not None:
            before.append(self.last_task)  # copies stand in front of the first task that needs them
        part = self.part(eqn)
        level = self.first_level if home is not None else 0
        if home is not None and part is not None:
            level += 2  # scalars for all parts come first, from whichever IPU
        for group in before:
            same = group.is_kernel and (group.home, group.part) == (home, part)
            level = max(level, group.level if same else group.level + 1)
        return level

    def group(self, level: int, home: Home, index: int, eqn: JaxprEqn) -> Group:
        if index >= 0 or home is None:
            group = Group(level, len(self.groups), home, index=index)
            self.groups.append(group)
            return group
        stack = joined(self.enclosing, name_stack(eqn))
        part, outside = self.part(eqn), read(stack).outside if home == HOST else None
        key = (level, home, part, outside)
        if key not in self.kernels:
            self.kernels[key] = Group(level, len(self.groups), home, outside=outside, part=part)
            self.groups.append(self.kernels[key])
        return self.kernels[key]

    def part(self, eqn: JaxprEqn) -> Var | None:
        """Which part of the body an equation belongs to; None where it is in one piece."""
        return next((self.part_of[var] for var in eqn.outvars if var in self.part_of), None)

    def shared_variables(self) -> set[Var]:
        """Variables that are read outside the group that makes them."""
        shared = set(variables(self.placed.jaxpr.jaxpr.outvars))
        for group in self.groups:
            read = variables(atom for eqn in group.eqns for atom in eqn.invars)
            shared.update(var for var in read if self.group_of.get(var) is not group)
        return shared


def _loads_remotely(eqn: JaxprEqn) -> bool:
    return eqn.primitive is load_p and eqn.params["storage"].remote


def _parts(eqns: Sequence[JaxprEqn]) -> dict[Var, Var]:
    """For every variable one that stands for all that are linked to it by more than scalars."""
    parent: dict[Var, Var] = {}

    def root(var: Var) -> Var:
        while parent[var] is not var:
            parent[var] = var = parent[parent[var]]
        return var

    for eqn in eqns:
        operands = [var for var in variables(eqn.invars) if var in parent]
        large = [var for var in (*operands, *eqn.outvars) if size_in_bytes(var.aval) > _SCALAR]
        if large:
            linked = [*(var for var in operands if var in large), *eqn.outvars]
            parent.update((var, var) for var in eqn.outvars)
            for var in linked[1:]:
                parent[root(var)] = root(linked[0])
    return {var: root(var) for var in parent}
