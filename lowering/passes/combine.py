"""The tools of combining passes: they merge equations that share an operand into one."""

from __future__ import annotations

import collections
import dataclasses as dc
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from lowering import ir, marks
from lowering.ground import sort_by_needs
from lowering.jaxprs import (
    BodyRewriter,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Var,
    name_stack,
    parameters_key,
    unique_variables,
    use_configuration_of,
)
from lowering.passes.rewrite_kernels import rewrite_kernels


@dc.dataclass(frozen=True, slots=True)
class SharedProperties:
    """The properties that equations must have in common to be combined.

    Attributes:
      shared: the operand that all of them read.
      position: which of the operands it is.
      rest: all other properties that must be equal.
    """

    shared: Var
    position: int
    rest: Hashable


@dc.dataclass(frozen=True, slots=True)
class CombinableKind:
    """A kind of equations, of two operands and one result, that can be combined.

    Attributes:
      find: returns the properties that an equation may share with others; none if it is not of the
        kind.
      join: takes the shared properties and the first of several equations; returns the function of
        the shared operand and all others that computes their results.
    """

    find: Callable[[JaxprEqn], Sequence[SharedProperties]]
    join: Callable[[SharedProperties, JaxprEqn], Callable[..., Sequence[Any]]]


def settings_of(eqn: JaxprEqn) -> Hashable:
    """Returns the settings of an equation: parameters, scopes of options, and its pass."""
    mark = marks.read_marks(name_stack(eqn))
    return eqn.primitive, parameters_key(eqn), eqn.ctx, mark.attributes, mark.backward


def take_index_list(eqn: JaxprEqn, window_dimensions: str) -> JaxprEqn:
    """Returns a gather or scatter as one whose indices are a list, [count, coordinates].

    Args:
      eqn: the equation.
      window_dimensions: the dimension numbers that say where the rows' dimensions are.
    """
    numbers = eqn.params["dimension_numbers"]
    window = tuple(range(1, 1 + len(getattr(numbers, window_dimensions))))
    changes = {
        "dimension_numbers": numbers._replace(**{window_dimensions: window}),
        "indices_are_sorted": False,
        "unique_indices": False,
    }
    return eqn.replace(params={**eqn.params, **changes})


def rewrite_bodies_in_kernels(
    program: ir.Program, finder: EquationFinder, change: Callable[[ClosedJaxpr], ClosedJaxpr | None]
) -> ir.Program:
    """Rewrites the equations that a finder selects, in all kernels and the bodies inside them."""
    return rewrite_kernels(program, finder, BodyRewriter(finder, change))


def combine_equations_in_kernels(program: ir.Program, kind: CombinableKind) -> ir.Program:
    """Combines those equations of a kernel, and of its bodies, that can be combined.

    Equations are combined that share an operand and have as many equations of the kind on the
    longest way to them, then those with as many on the longest way from them. So none depends on
    another, and no combination on one that depends on it; and all this takes time linear in the
    number of equations.
    """

    def combine_equations(closed: ClosedJaxpr) -> ClosedJaxpr | None:
        eqns = closed.jaxpr.eqns
        units = [_Unit([eqn], kind.find(eqn)) for eqn in eqns]
        for levels in (_count_levels_before_each, _count_levels_behind_each):
            units = _sort_units(_merge_units(units, levels(units)))
        return (
            _merge_equations_of_each_unit(closed, units, kind) if len(units) < len(eqns) else None
        )

    return rewrite_bodies_in_kernels(
        program, EquationFinder(lambda eqn: bool(kind.find(eqn))), combine_equations
    )


@dc.dataclass(frozen=True, slots=True)
class _Unit:
    """A single equation, or several that become one, and their shared properties."""

    eqns: list[JaxprEqn]
    common: Sequence[SharedProperties]


def _predecessors_of_each(units: Sequence[_Unit]) -> list[list[int]]:
    """Returns which units must come before each: those it reads from; effects stay in order."""
    unit_of_variable = {
        v: number for number, unit in enumerate(units) for e in unit.eqns for v in e.outvars
    }
    needs: list[list[int]] = []
    last: list[int] = []
    for number, unit in enumerate(units):
        read = unique_variables(atom for eqn in unit.eqns for atom in eqn.invars)
        needs.append([unit_of_variable[var] for var in read if var in unit_of_variable])
        if unit.eqns[0].effects:
            needs[-1] += last
            last = [number]
    return needs


def _count_levels_before_each(units: Sequence[_Unit]) -> list[int]:
    """Returns the number of units of the kind on the longest way to each."""
    depths: list[int] = []
    for needed in _predecessors_of_each(units):
        depths.append(max((depths[n] + bool(units[n].common) for n in needed), default=0))
    return depths


def _count_levels_behind_each(units: Sequence[_Unit]) -> list[int]:
    """Returns the number of units of the kind on the longest way from each."""
    heights = [0] * len(units)
    for number, needed in reversed(list(enumerate(_predecessors_of_each(units)))):
        above = heights[number] + bool(units[number].common)
        for need in needed:
            heights[need] = max(heights[need], above)
    return heights


def _merge_units(units: Sequence[_Unit], levels: Sequence[int]) -> list[_Unit]:
    """Merges the units of one level that share an operand, in the place of the first.

    If a unit can be merged in two ways, the one with more units is taken.
    """
    keys = [
        [(level, common) for common in unit.common]
        for unit, level in zip(units, levels, strict=True)
    ]
    counts = collections.Counter(key for keys_of_unit in keys for key in keys_of_unit)
    groups: dict[Hashable, _Unit] = {}
    merged: list[_Unit] = []
    for unit, found in zip(units, keys, strict=True):
        best_key = max(found, key=counts.__getitem__, default=None)
        if best_key is None or counts[best_key] == 1:
            merged.append(unit)
        elif best_key in groups:
            groups[best_key].eqns.extend(unit.eqns)
        else:
            groups[best_key] = _Unit(list(unit.eqns), [best_key[1]])
            merged.append(groups[best_key])
    return merged


def _sort_units(units: Sequence[_Unit]) -> list[_Unit]:
    """Returns the units in their order, but those that earlier ones need come first."""
    return [units[number] for number in sort_by_needs(_predecessors_of_each(units))]


def _merge_equations_of_each_unit(
    closed: ClosedJaxpr, units: Sequence[_Unit], kind: CombinableKind
) -> ClosedJaxpr:
    rewriter = EquationRewriter(closed.jaxpr)
    for unit in units:
        eqn = unit.eqns[0]
        if len(unit.eqns) == 1:
            rewriter.keep_equation(eqn)
            continue
        (common,) = unit.common
        other_operands = [member.invars[1 - common.position] for member in unit.eqns]
        results = [member.outvars[0] for member in unit.eqns]
        with use_configuration_of(eqn):
            combined_eqn = eqn.replace(invars=[common.shared, *other_operands], outvars=results)
            rewriter.replace_by_function(combined_eqn, kind.join(common, eqn))
    return rewriter.build_rewritten_jaxpr(closed.consts)
