"""What combining passes share: finds equations that read one operand and makes one of several."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from lowering import ir, marks
from lowering.equations import variables
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    in_context_of,
    name_stack,
)
from lowering.order import in_order
from lowering.passes.rewrite import Anywhere, InBodies, Rewriter
from lowering.structure import parameters_key


@dc.dataclass(frozen=True, slots=True)
class Common:
    """What equations must have in common to be combined.

    Attributes:
      shared: the operand that all of them read.
      position: which of the operands it is.
      rest: all else that must be equal.
    """

    shared: Var
    position: int
    rest: Hashable


@dc.dataclass(frozen=True, slots=True)
class Kind:
    """Equations of two operands and one result that can be combined.

    Attributes:
      find: what an equation may have in common with others; nothing if it is not of the kind.
      join: of what several have in common, and the first of them, the function of the shared
        operand and all others that gives their results.
    """

    find: Callable[[JaxprEqn], Sequence[Common]]
    join: Callable[[Common, JaxprEqn], Callable[..., Sequence[Any]]]


def settings_of(eqn: JaxprEqn) -> Hashable:
    """What holds of an equation beside its operands: parameters, scopes of options, the pass."""
    mark = marks.read(name_stack(eqn))
    return eqn.primitive, parameters_key(eqn), eqn.ctx, mark.attributes, mark.backward


def in_kernels(
    program: ir.Program, where: Anywhere, change: Callable[[ClosedJaxpr], ClosedJaxpr | None]
) -> ir.Program:
    """The program with its kernels, and the bodies inside, changed as by `rewrite.InBodies`."""
    changed = InBodies(where, change)

    def node(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Execute) or not where(node.kernel.jaxpr.jaxpr):
            return node
        return dc.replace(node, kernel=dc.replace(node.kernel, jaxpr=changed(node.kernel.jaxpr)))

    return dc.replace(program, body=ir.with_nodes(program.body, node))


def combine(program: ir.Program, kind: Kind) -> ir.Program:
    """Makes one equation of those in a kernel that may be one, in bodies too.

    Equations are combined that share an operand and have as many equations of the kind on the
    longest way to them, then those with as many on the longest way from them. So none depends on
    another, and no combination on one that depends on it; and all this takes time linear in the
    number of equations.
    """

    def change(closed: ClosedJaxpr) -> ClosedJaxpr | None:
        eqns = closed.jaxpr.eqns
        units = [_Unit([eqn], kind.find(eqn)) for eqn in eqns]
        for levels in (_depths, _heights):
            units = _in_order(_merged(units, levels(units)))
        return _combined(closed, units, kind) if len(units) < len(eqns) else None

    return in_kernels(program, Anywhere(lambda eqn: bool(kind.find(eqn))), change)


@dc.dataclass(frozen=True, slots=True)
class _Unit:
    """Equations that become one, or a single one, and what it may have in common with others."""

    eqns: list[JaxprEqn]
    common: Sequence[Common]


def _needs(units: Sequence[_Unit]) -> list[list[int]]:
    """Which units must come before each: those whose results it reads; effects stay in order."""
    makers = {v: number for number, unit in enumerate(units) for e in unit.eqns for v in e.outvars}
    needs: list[list[int]] = []
    last: list[int] = []
    for number, unit in enumerate(units):
        read = variables(atom for eqn in unit.eqns for atom in eqn.invars)
        needs.append([makers[var] for var in read if var in makers])
        if unit.eqns[0].effects:
            needs[-1] += last
            last = [number]
    return needs


def _depths(units: Sequence[_Unit]) -> list[int]:
    """How many units of the kind are on the longest way to each, all they need before them."""
    depths: list[int] = []
    for needed in _needs(units):
        depths.append(max((depths[n] + bool(units[n].common) for n in needed), default=0))
    return depths


def _heights(units: Sequence[_Unit]) -> list[int]:
    """How many are on the longest way from each."""
    heights = [0] * len(units)
    for number, needed in reversed(list(enumerate(_needs(units)))):
        above = heights[number] + bool(units[number].common)
        for need in needed:
            heights[need] = max(heights[need], above)
    return heights


def _merged(units: Sequence[_Unit], levels: Sequence[int]) -> list[_Unit]:
    """The units, those of one level that share an operand in the place of the first.

    Of two ways to combine a unit that with more of them is taken.
    """
    keys = [
        [(level, common) for common in unit.common]
        for unit, level in zip(units, levels, strict=True)
    ]
    counts = collections.Counter(key for found in keys for key in found)
    groups: dict[Hashable, _Unit] = {}
    merged: list[_Unit] = []
    for unit, found in zip(units, keys, strict=True):
        best = max(found, key=counts.__getitem__, default=None)
        if best is None or counts[best] == 1:
            merged.append(unit)
        elif best in groups:
            groups[best].eqns.extend(unit.eqns)
        else:
            groups[best] = _Unit(list(unit.eqns), [best[1]])
            merged.append(groups[best])
    return merged


def _in_order(units: Sequence[_Unit]) -> list[_Unit]:
    """The units in their order, but for what others in front of them need, which goes first."""
    return [units[number] for number in in_order(_needs(units))]


def _combined(closed: ClosedJaxpr, units: Sequence[_Unit], kind: Kind) -> ClosedJaxpr:
    rewriter = Rewriter(closed.jaxpr)
    for unit in units:
        eqn = unit.eqns[0]
        if len(unit.eqns) == 1:
            rewriter.keep(eqn)
            continue
        (common,) = unit.common
        others = [member.invars[1 - common.position] for member in unit.eqns]
        results = [member.outvars[0] for member in unit.eqns]
        with in_context_of(eqn):
            joined = eqn.replace(invars=[common.shared, *others], outvars=results)
            rewriter.trace(joined, kind.join(common, eqn))
    return rewriter.closed(closed.consts)
