"""The grouping of a placed body's equations into kernels, and their order.

An equation's level is the number of times that data had to change IPU before it. Equations of
one IPU and one level become one kernel; kernels of one level share no value, so they may overlap.
Control flow that is split, queue operations and host calls are steps of their own.

Kernels that read values from streaming memory are cut further, into parts that share scalars only,
so that one value (of an optimizer's state, say) is loaded, changed and stored after the other.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.ground import HOST, IpuId
from lowering.jaxprs import (
    Atom,
    JaxprEqn,
    Var,
    is_ordered,
    name_stack,
    size_in_bytes,
    unique_variables,
)
from lowering.marks import join_name_stacks, read_marks
from lowering.ops import dequeue_p, enqueue_p, is_task, load_p, store_p
from lowering.passes.place import Home, PlacedBody

# Primitives that are steps of their own wherever they stand.
_STEPS = (dequeue_p, enqueue_p, load_p, store_p)

_SCALAR = 8  # values of up to so many bytes may be shared by parts


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
        """A flag: the group is a kernel, and not a step of its own."""
        return self.index < 0


def group_equations(placed: PlacedBody, enclosing_stack: str) -> tuple[list[Group], set[Var]]:
    """Groups the equations of a body.

    Args:
      placed: the body; every equation has a home.
      enclosing_stack: the name stack of the equation that the body belongs to.

    Returns:
      One group per kernel or step, in an order that keeps all dependencies, and the variables that
      are read outside the group that makes them.
    """
    grouper = _Grouper(placed, enclosing_stack)
    grouper.group_body()
    groups = sorted(grouper.groups, key=lambda group: (group.level, group.order))
    return groups, grouper.variables_read_by_other_groups()


@dc.dataclass(frozen=True, slots=True)
class _Waiting:
    """An equation that makes constants only, and joins the kernel that reads them first."""

    index: int
    eqn: JaxprEqn
    home: IpuId


class _Grouper:
    """The grouping of one body."""

    def __init__(self, placed: PlacedBody, enclosing_stack: str):
        self.placed, self.enclosing = placed, enclosing_stack
        self.group_of: dict[Var, Group] = {}
        self.kernels: dict[tuple[int, IpuId, Var | None, str | None], Group] = {}
        self.groups: list[Group] = []
        self.last_ordered: Group | None = None
        self.last_task: Group | None = None
        self.waiting: dict[Var, _Waiting] = {}
        # Equations that need no element would otherwise be a kernel before that of their readers.
        eqns = placed.jaxpr.jaxpr.eqns
        self.first_level = int(any(eqn.primitive in (dequeue_p, load_p) for eqn in eqns))
        self.part_of = _part_of_each_variable(eqns) if any(map(_loads_remotely, eqns)) else {}

    def group_body(self) -> None:
        for index, eqn in enumerate(self.placed.jaxpr.jaxpr.eqns):
            self.add_equation_to_group(index, eqn)
        self.move_waiting_into_kernel(unique_variables(self.placed.jaxpr.jaxpr.outvars))

    def add_equation_to_group(self, index: int, eqn: JaxprEqn) -> None:
        home = self.placed.homes[index]
        is_step = index in self.placed.bodies or eqn.primitive in _STEPS
        kernel_home = None if is_step or home == HOST else home
        operands = unique_variables(eqn.invars)
        if kernel_home is not None and self.can_wait(eqn, operands, kernel_home):
            waiting = _Waiting(index, eqn, kernel_home)
            self.waiting.update((var, waiting) for var in eqn.outvars)
            return
        # An equation that waits on another IPU cannot join the reader, nor can any join a step.
        early_variables = [
            v for v in operands if v in self.waiting and self.waiting[v].home != kernel_home
        ]
        self.move_waiting_into_kernel(early_variables)
        group = self.find_or_add_group(
            self.level_of_equation(eqn, kernel_home), home, index if is_step else -1, eqn
        )
        self.move_waiting_into_kernel(operands, group)
        group.eqns.append(eqn)
        if is_ordered(eqn):
            self.last_ordered = group
        if is_task(eqn):
            self.last_task = group
        self.group_of.update((var, group) for var in eqn.outvars)

    def can_wait(self, eqn: JaxprEqn, operands: Sequence[Var], home: IpuId) -> bool:
        """Returns whether an equation makes constants only, and can join their reader."""
        waiting = (var in self.waiting and self.waiting[var].home == home for var in operands)
        return not eqn.effects and all(waiting)

    def move_waiting_into_kernel(
        self, variables_needed: Sequence[Var], target_group: Group | None = None
    ) -> None:
        """Puts the waiting equations of variables into a kernel; by default, an early one."""
        for waiting in self.waiting_equations_for(variables_needed):
            eqn, group = waiting.eqn, target_group
            if group is None:
                level = max((g.level for g in self.groups_producing(eqn.invars)), default=0)
                group = self.find_or_add_group(level, waiting.home, -1, eqn)
            group.eqns.append(eqn)
            for result in eqn.outvars:
                self.waiting.pop(result, None)
                self.group_of[result] = group

    def waiting_equations_for(self, variables_needed: Sequence[Var]) -> list[_Waiting]:
        """Returns the waiting equations that variables need, in the order of the body."""
        needed: dict[int, _Waiting] = {}
        unvisited = list(variables_needed)
        while unvisited:
            waiting = self.waiting.get(unvisited.pop())
            if waiting is not None and waiting.index not in needed:
                needed[waiting.index] = waiting
                unvisited.extend(unique_variables(waiting.eqn.invars))
        return [needed[index] for index in sorted(needed)]

    def groups_producing(self, atoms: Sequence[Atom]) -> list[Group]:
        """Returns the groups that operands, or the operands of waiting equations, come from."""
        sources = unique_variables(atoms)
        for waiting in self.waiting_equations_for(sources):
            sources += unique_variables(waiting.eqn.invars)
        return [self.group_of[var] for var in sources if var in self.group_of]

    def level_of_equation(self, eqn: JaxprEqn, home: Home) -> int:
        """Returns the producers' highest level plus one; plus none for those in the same kernel."""
        groups_before = self.groups_producing(eqn.invars)
        if is_ordered(eqn) and self.last_ordered is not None:
            groups_before.append(self.last_ordered)
        if is_task(eqn) and self.last_task is not None:
            groups_before.append(self.last_task)  # copies precede the first task that needs them
        part = self.part_of_equation(eqn)
        level = self.first_level if home is not None else 0
        if home is not None and part is not None:
            level += 2  # scalars for all parts come first, from whichever IPU
        for group in groups_before:
            is_same_kernel = group.is_kernel and (group.home, group.part) == (home, part)
            level = max(level, group.level if is_same_kernel else group.level + 1)
        return level

    def find_or_add_group(self, level: int, home: Home, index: int, eqn: JaxprEqn) -> Group:
        if index >= 0 or home is None:
            group = Group(level, len(self.groups), home, index=index)
            self.groups.append(group)
            return group
        stack = join_name_stacks(self.enclosing, name_stack(eqn))
        part, outside = (
            self.part_of_equation(eqn),
            read_marks(stack).outside if home == HOST else None,
        )
        key = (level, home, part, outside)
        if key not in self.kernels:
            self.kernels[key] = Group(level, len(self.groups), home, outside=outside, part=part)
            self.groups.append(self.kernels[key])
        return self.kernels[key]

    def part_of_equation(self, eqn: JaxprEqn) -> Var | None:
        """Returns the part of the body that an equation is in; None if the body is one part."""
        return next((self.part_of[var] for var in eqn.outvars if var in self.part_of), None)

    def variables_read_by_other_groups(self) -> set[Var]:
        """Returns the variables that are read outside the group that makes them."""
        shared = set(unique_variables(self.placed.jaxpr.jaxpr.outvars))
        for group in self.groups:
            read = unique_variables(atom for eqn in group.eqns for atom in eqn.invars)
            shared.update(var for var in read if self.group_of.get(var) is not group)
        return shared


def _loads_remotely(eqn: JaxprEqn) -> bool:
    return eqn.primitive is load_p and eqn.params["storage"].remote


def _part_of_each_variable(eqns: Sequence[JaxprEqn]) -> dict[Var, Var]:
    """Maps every variable to one that stands for all linked to it by more than scalars."""
    parent: dict[Var, Var] = {}

    def find_root(var: Var) -> Var:
        while parent[var] is not var:
            parent[var] = var = parent[parent[var]]
        return var

    for eqn in eqns:
        operands = [var for var in unique_variables(eqn.invars) if var in parent]
        large = [var for var in (*operands, *eqn.outvars) if size_in_bytes(var.aval) > _SCALAR]
        if large:
            linked = [*(var for var in operands if var in large), *eqn.outvars]
            parent.update((var, var) for var in eqn.outvars)
            for var in linked[1:]:
                parent[find_root(var)] = find_root(linked[0])
    return {var: find_root(var) for var in parent}
