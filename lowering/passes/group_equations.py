"""The grouping of a placed body's equations into kernels, and their order.

An equation's level is the number of times that data had to change IPU before it. Equations of
one IPU and one level become one kernel; kernels of one level share no value, so they may overlap.
Control flow that is split, queue operations and host calls are steps of their own.

An equation that makes constants joins the kernel that reads them first. So does a cheap one that
reads the body's inputs only: an optimizer's decay, computed before its update, would otherwise
be kept beside the input, by a kernel of its own.

Kernels that read values from streaming memory are cut further, into parts that share scalars only,
so that one value (of an optimizer's state, say) is loaded, changed and stored after the other.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence

from lowering.ground import HOST, IpuId
from lowering.jaxprs import (
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

# Elementwise primitives that take no longer than reading their operands.
_CHEAP = frozenset({"add", "sub", "mul", "div", "neg", "convert_element_type"})


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
    """An equation that joins the kernel that reads its results first.

    Attributes:
      index: its number in the body.
      eqn: the equation.
      home: the IPU that runs it.
      is_constant: whether it makes constants only.
    """

    index: int
    eqn: JaxprEqn
    home: IpuId
    is_constant: bool


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
        jaxpr = placed.jaxpr.jaxpr
        eqns = jaxpr.eqns
        self.first_level = int(any(eqn.primitive in (dequeue_p, load_p) for eqn in eqns))
        self.part_of = _part_of_each_variable(eqns) if any(map(_loads_remotely, eqns)) else {}
        # The body's inputs, and variables that wait; not inputs of bodies that have parts, since
        # parts are loaded, changed and stored one after the other, each as a whole.
        self.early = set[Var]() if self.part_of else {*jaxpr.invars, *jaxpr.constvars}

    def group_body(self) -> None:
        for index, eqn in enumerate(self.placed.jaxpr.jaxpr.eqns):
            self.add_equation_to_group(index, eqn)
        self.move_waiting_into_kernel(unique_variables(self.placed.jaxpr.jaxpr.outvars))

    def add_equation_to_group(self, index: int, eqn: JaxprEqn) -> None:
        home = self.placed.homes[index]
        is_step = index in self.placed.bodies or eqn.primitive in _STEPS
        kernel_home = None if is_step or home == HOST else home
        operands = unique_variables(eqn.invars)
        awaited = [v for v in operands if v in self.waiting]
        are_early = self.early.issuperset(operands)
        if (
            are_early
            and kernel_home is not None
            and self.can_wait(eqn, operands, awaited, kernel_home)
        ):
            is_constant = len(awaited) == len(operands) and self.are_constants(awaited)
            waiting = _Waiting(index, eqn, kernel_home, is_constant)
            self.waiting.update((var, waiting) for var in eqn.outvars)
            self.early.update(eqn.outvars)
            return
        # An equation that waits on another IPU cannot join the reader, nor can any join a step.
        if awaited:
            others = [v for v in awaited if self.waiting[v].home != kernel_home]
            self.move_waiting_into_kernel(others)
        group = self.find_or_add_group(
            self.level_of_equation(eqn, operands, kernel_home), home, index if is_step else -1, eqn
        )
        if awaited:
            self.move_waiting_into_kernel(awaited, group)
        group.eqns.append(eqn)
        if is_ordered(eqn):
            self.last_ordered = group
        if is_task(eqn):
            self.last_task = group
        self.group_of.update((var, group) for var in eqn.outvars)

    def can_wait(
        self, eqn: JaxprEqn, operands: Sequence[Var], awaited: Sequence[Var], home: IpuId
    ) -> bool:
        """Returns whether an equation of early operands can join the first reader's kernel."""
        if eqn.effects or any(self.waiting[var].home != home for var in awaited):
            return False
        if len(awaited) == len(operands) and self.are_constants(awaited):
            return True
        if eqn.primitive.name not in _CHEAP:
            return False
        # The operands are kept until then: they must not take more room than the results.
        kept = sum(size_in_bytes(var.aval) for var in operands)
        return kept <= sum(size_in_bytes(var.aval) for var in eqn.outvars)

    def are_constants(self, awaited: Sequence[Var]) -> bool:
        """Returns whether all of some waiting variables are constants."""
        return all(self.waiting[var].is_constant for var in awaited)

    def move_waiting_into_kernel(
        self, variables_needed: Sequence[Var], target_group: Group | None = None
    ) -> None:
        """Puts the waiting equations of variables into a kernel; by default, an early one."""
        for waiting in self.waiting_equations_for(variables_needed):
            eqn, group = waiting.eqn, target_group
            if group is None:
                producers = self.groups_producing(unique_variables(eqn.invars))
                first_level = 0 if waiting.is_constant else self.first_level
                level = max([first_level, *(g.level for g in producers)])
                group = self.find_or_add_group(level, waiting.home, -1, eqn)
            group.eqns.append(eqn)
            for result in eqn.outvars:
                self.waiting.pop(result, None)
                self.early.discard(result)
                self.group_of[result] = group

    def waiting_equations_for(self, variables_needed: Sequence[Var]) -> list[_Waiting]:
        """Returns the waiting equations that variables need, in the order of the body."""
        if self.waiting.keys().isdisjoint(variables_needed):
            return []
        needed: dict[int, _Waiting] = {}
        unvisited = list(variables_needed)
        while unvisited:
            waiting = self.waiting.get(unvisited.pop())
            if waiting is not None and waiting.index not in needed:
                needed[waiting.index] = waiting
                unvisited.extend(unique_variables(waiting.eqn.invars))
        return [needed[index] for index in sorted(needed)]

    def groups_producing(self, operands: Sequence[Var]) -> list[Group]:
        """Returns the groups that operands, or the operands of waiting equations, come from."""
        sources = list(operands)
        for waiting in self.waiting_equations_for(operands):
            sources += unique_variables(waiting.eqn.invars)
        return [self.group_of[var] for var in sources if var in self.group_of]

    def level_of_equation(self, eqn: JaxprEqn, operands: Sequence[Var], home: Home) -> int:
        """Returns the producers' highest level plus one; plus none for those in the same kernel."""
        groups_before = self.groups_producing(operands)
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
        part = self.part_of_equation(eqn)
        outside = self.outside_scope_of(eqn) if home == HOST else None
        key = (level, home, part, outside)
        if key not in self.kernels:
            self.kernels[key] = Group(level, len(self.groups), home, outside=outside, part=part)
            self.groups.append(self.kernels[key])
        return self.kernels[key]

    def outside_scope_of(self, eqn: JaxprEqn) -> str | None:
        """Returns the name of the `outside_compilation_scope` around an equation, or None."""
        return read_marks(join_name_stacks(self.enclosing, name_stack(eqn))).outside

    def part_of_equation(self, eqn: JaxprEqn) -> Var | None:
        """Returns the part of the body that an equation is in; None if the body is one part."""
        if not self.part_of:
            return None
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
