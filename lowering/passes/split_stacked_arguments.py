"""Splits stacked arguments and results of a program into the rows of each IPU.

A model that scans over its layers keeps each parameter in one array `[layers, ...]`, of which each
stage of a pipeline reads some rows. As one value it could live on one IPU alone, with its gradient
and its update; in parts, each IPU has its rows of all three.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    Literal,
    Var,
    add_innermost_scope,
    bind_equation,
    constants_to_arguments,
    function_of_jaxpr,
    inline_jitted_calls,
    shape_of,
    trace_flat,
    use_configuration_of,
    use_source_of,
)
from lowering.ops import ControlFlow, Variables
from lowering.passes.find_row_splits import (
    REDUCTIONS,
    RowSplit,
    find_row_splits,
    has_rows_of_result,
    has_unit_strides,
    is_split_with_bodies,
    read_marked_rows,
    shapes_of_parts,
)


@dc.dataclass(frozen=True)
class SplitProgram:
    """A program some of whose arguments and results are split.

    Attributes:
      closed: the program; the parts of an array follow one another.
      arguments: for each argument of the original its split, or None.
      results: for each result of the original its split, or None.
    """

    closed: ClosedJaxpr
    arguments: tuple[RowSplit | None, ...]
    results: tuple[RowSplit | None, ...]


def split_stacked_arguments(
    closed: ClosedJaxpr, can_split: Callable[[RowSplit], bool]
) -> SplitProgram:
    """Splits the arguments whose rows several IPUs read, and the results that follow from them.

    Args:
      closed: the whole function.
      can_split: whether an array may be split so.

    Before: any jaxpr.
    After:  as before if nothing is split; otherwise jitted functions are opened.
    """
    if not EquationFinder(_is_marked_slice)(closed.jaxpr):
        return _leave_whole(closed)
    opened = inline_jitted_calls(closed)
    split_of = find_row_splits(opened.jaxpr, can_split)
    arguments = tuple(map(split_of, opened.jaxpr.invars))
    results = tuple(map(split_of, opened.jaxpr.outvars))
    if not any((*arguments, *results)):
        return _leave_whole(closed)
    return SplitProgram(_Splitter(split_of).split_body(opened), arguments, results)


def _is_marked_slice(eqn: JaxprEqn) -> bool:
    return read_marked_rows(eqn) is not None


def _leave_whole(closed: ClosedJaxpr) -> SplitProgram:
    jaxpr = closed.jaxpr
    return SplitProgram(closed, (None,) * len(jaxpr.invars), (None,) * len(jaxpr.outvars))


class _Values:
    """The values of a body while it is traced: each a whole array, its parts, or both.

    Args:
      split_of: the split of a variable, or None.
    """

    def __init__(self, split_of: Callable[[Atom], RowSplit | None]):
        self.split_of = split_of
        self._wholes: dict[Var, Any] = {}
        self._parts: dict[Var, Sequence[Any]] = {}

    def write_flat(
        self, variables: Sequence[Atom], flat: Sequence[Any], num_whole: int = 0
    ) -> None:
        """Takes values, or the parts of those that are split, one after the other.

        Args:
          variables: what they are.
          flat: the values and parts.
          num_whole: how many values at the end are whole.
        """
        rest = iter(flat)
        for number, var in enumerate(variables):
            split = self.split_of(var) if number < len(variables) - num_whole else None
            if split is None:
                self.write_whole(var, next(rest))
            else:
                self.write_parts(var, [next(rest) for _ in split.ipus])

    def write_whole(self, var: Atom, value: Any) -> None:
        if isinstance(var, Var):
            self._wholes[var] = value

    def write_parts(self, var: Atom, parts: Sequence[Any]) -> None:
        if isinstance(var, Var):
            self._parts[var] = parts

    def read_whole(self, atom: Atom) -> Any:
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self._wholes:
            self._wholes[atom] = jnp.concatenate(self._parts[atom])
        return self._wholes[atom]

    def read_parts(self, atom: Atom, split: RowSplit) -> Sequence[Any]:
        parts = self._parts.get(atom) if isinstance(atom, Var) else None
        if parts is None:
            whole = self.read_whole(atom)
            parts = [lax.slice_in_dim(whole, *rows) for rows in split.ranges]
            self.write_parts(atom, parts)
        return parts

    def read_flat(self, atoms: Sequence[Atom]) -> list[Any]:
        """Returns values, or the parts of those that are split, one after the other."""
        flat: list[Any] = []
        for atom in atoms:
            split = self.split_of(atom)
            flat += [self.read_whole(atom)] if split is None else self.read_parts(atom, split)
        return flat


class _Splitter:
    """The rewriting of a program by the splits of its variables."""

    def __init__(self, split_of: Callable[[Atom], RowSplit | None]):
        self.split_of = split_of

    def split_body(
        self, closed: ClosedJaxpr, num_elements: int = 0, num_stacked: int = 0
    ) -> ClosedJaxpr:
        """Returns a body that takes and gives parts in place of what is split.

        Args:
          closed: the body.
          num_elements: how many of its last arguments are elements of stacked arrays, and whole.
          num_stacked: how many of its last results are to be stacked, and whole.
        """
        opened, consts = constants_to_arguments(closed)
        jaxpr = opened.jaxpr

        def run_on_parts(*flat: jax.Array) -> list[Any]:
            values = _Values(self.split_of)
            values.write_flat(jaxpr.invars, flat, num_elements)
            for eqn in jaxpr.eqns:
                with use_configuration_of(eqn):
                    self._run_equation(eqn, values)
            last = len(jaxpr.outvars) - num_stacked
            stacked = map(values.read_whole, jaxpr.outvars[last:])
            return [*values.read_flat(jaxpr.outvars[:last]), *stacked]

        last = len(jaxpr.invars) - num_elements
        avals = [aval for var in jaxpr.invars[:last] for aval in self._avals_of_parts(var)]
        avals += [var.aval for var in jaxpr.invars[last:]]
        traced = trace_flat(run_on_parts, avals)
        constvars, invars = traced.jaxpr.invars[: len(consts)], traced.jaxpr.invars[len(consts) :]
        debug = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
        body = traced.jaxpr.replace(
            constvars=[*traced.jaxpr.constvars, *constvars], invars=invars, debug_info=debug
        )
        return ClosedJaxpr(body, [*traced.consts, *consts])

    def _avals_of_parts(self, var: Var) -> list[Any]:
        split, aval = self.split_of(var), var.aval
        if split is None:
            return [aval]
        return [
            jax.ShapeDtypeStruct(shape, aval.dtype, weak_type=aval.weak_type)
            for shape in shapes_of_parts(shape_of(aval), split)
        ]

    def _run_equation(self, eqn: JaxprEqn, values: _Values) -> None:
        name = eqn.primitive.name
        split = next(filter(None, map(self.split_of, (*eqn.outvars, *eqn.invars))), None)
        if split is None:
            self._run_whole(eqn, values)
        elif name == "scan":
            self._run_scan(eqn, values)
        elif is_split_with_bodies(eqn):
            self._run_bodies(eqn, values)
        elif has_rows_of_result(eqn, eqn.outvars[0]) and self.split_of(eqn.outvars[0]) is not None:
            self._run_parts(eqn, values, split)
        elif name == "slice":
            self._run_slice(eqn, values, split)
        elif name in REDUCTIONS:
            self._run_reduction(eqn, values, split)
        elif name == "concatenate" and self.split_of(eqn.outvars[0]) is not None:
            self._run_concatenation(eqn, values, split)
        else:
            self._run_whole(eqn, values)

    def _run_whole(self, eqn: JaxprEqn, values: _Values) -> None:
        results = bind_equation(eqn, [values.read_whole(atom) for atom in eqn.invars])
        for var, result in zip(eqn.outvars, results, strict=True):
            values.write_whole(var, result)

    def _run_parts(self, eqn: JaxprEqn, values: _Values, split: RowSplit) -> None:
        """Runs an equation on the parts of its operands, one after the other."""
        columns = [
            values.read_parts(atom, split)
            if isinstance(atom, Var) and has_rows_of_result(eqn, atom)
            else [values.read_whole(atom)] * len(split.ipus)
            for atom in eqn.invars
        ]
        shapes = shapes_of_parts(shape_of(eqn.outvars[0].aval), split)
        parts: list[Any] = []
        for shape, operands in zip(shapes, zip(*columns, strict=True), strict=True):
            params = {**eqn.params, "shape": shape} if "shape" in eqn.params else eqn.params
            parts += bind_equation(eqn.replace(params=params), operands)
        values.write_parts(eqn.outvars[0], parts)

    def _run_slice(self, eqn: JaxprEqn, values: _Values, split: RowSplit) -> None:
        """Takes a slice out of the part that has all its rows; out of the whole if none has."""
        starts, stops = eqn.params["start_indices"], eqn.params["limit_indices"]
        numbered = enumerate(split.ranges)
        holding = [n for n, (first, end) in numbered if first <= starts[0] < stops[0] <= end]
        if not holding:
            self._run_whole(eqn, values)
            return
        (number,) = holding
        part, first = values.read_parts(eqn.invars[0], split)[number], split.bounds[number]
        starts, stops = (starts[0] - first, *starts[1:]), (stops[0] - first, *stops[1:])
        if has_unit_strides(eqn) and (starts, stops) == ((0,) * len(starts), part.shape):
            values.write_whole(eqn.outvars[0], part)
            return
        params = {**eqn.params, "start_indices": starts, "limit_indices": stops}
        scope = marks.write_mark(marks.SHARD, str(split.ipus[number]))
        changed = add_innermost_scope(eqn.replace(params=params), scope)
        values.write_whole(eqn.outvars[0], bind_equation(changed, [part])[0])

    def _run_reduction(self, eqn: JaxprEqn, values: _Values, split: RowSplit) -> None:
        """Reduces each part over all its rows, and combines the results."""
        parts = [bind_equation(eqn, [x])[0] for x in values.read_parts(eqn.invars[0], split)]
        with use_source_of(eqn):
            total = functools.reduce(REDUCTIONS[eqn.primitive.name], parts)
        values.write_whole(eqn.outvars[0], total)

    def _run_concatenation(self, eqn: JaxprEqn, values: _Values, split: RowSplit) -> None:
        """Concatenates the operands of each part, if they end where it does."""
        operands = [values.read_whole(atom) for atom in eqn.invars]
        first_row, groups = 0, dict[int, list[Any]]()
        for operand in operands:
            part = bisect.bisect_right(split.bounds, first_row)
            first_row += operand.shape[0]
            groups.setdefault(part, []).append(operand)
        lengths = [sum(x.shape[0] for x in group) for group in groups.values()]
        if eqn.params["dimension"] or lengths != [stop - start for start, stop in split.ranges]:
            self._run_whole(eqn, values)
            return
        parts = [
            group[0] if len(group) == 1 else bind_equation(eqn, group)[0]
            for group in groups.values()
        ]
        values.write_parts(eqn.outvars[0], parts)

    def _run_bodies(self, eqn: JaxprEqn, values: _Values) -> None:
        """Runs control flow whose bodies take and give parts."""
        flow = ControlFlow.view_of_equation(eqn)
        bodies = [self.split_body(body) for body in flow.bodies]
        first = flow.constants[0].start
        leading = [values.read_whole(atom) for atom in eqn.invars[:first]]
        constants = [values.read_flat(eqn.invars[part]) for part in _distinct(flow.constants)]
        carried = values.read_flat(eqn.invars[flow.carried])
        params = flow.params_with_bodies(bodies, [*map(len, constants)])
        if flow.kind == "ipu_repeat":
            params["loop"] = self._name_parts(eqn.params["loop"], eqn.invars[flow.carried])
        operands = [*leading, *(x for part in constants for x in part), *carried]
        values.write_flat(eqn.outvars, bind_equation(eqn.replace(params=params), operands))

    def _run_scan(self, eqn: JaxprEqn, values: _Values) -> None:
        """Runs a scan whose constants and loop variables may be parts."""
        flow, params = ControlFlow.view_of_equation(eqn), eqn.params
        elements, stacked = eqn.invars[flow.elements], flow.num_stacked_results
        body = self.split_body(flow.bodies[0], len(elements), stacked)
        constants = values.read_flat(eqn.invars[flow.constants[0]])
        variables = values.read_flat(eqn.invars[flow.carried])

        def run_iteration(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
            results = function_of_jaxpr(body)(*constants, *carry, *row)
            return results[: len(carry)], results[len(carry) :]

        with use_source_of(eqn):
            final, rows = lax.scan(
                run_iteration,
                variables,
                [values.read_whole(atom) for atom in elements],
                length=params["length"],
                reverse=params["reverse"],
                unroll=params["unroll"],
            )
        values.write_flat(eqn.outvars, [*final, *rows], stacked)

    def _name_parts(self, loop: Variables, carried: Sequence[Atom]) -> Variables:
        """Returns the names of a user's loop variables with those of their parts."""
        names: list[str] = []
        for name, atom in zip(loop.names, carried, strict=bool(loop.names)):
            split = self.split_of(atom)
            ranges = [] if split is None else split.ranges
            names += [f"{name}[{start}:{stop}]" for start, stop in ranges] or [name]
        return dc.replace(loop, names=tuple(names))


def _distinct(parts: Sequence[slice]) -> list[slice]:
    """Returns the slices of operands that bodies take, once if the bodies share one."""
    return [part for number, part in enumerate(parts) if part not in parts[:number]]
