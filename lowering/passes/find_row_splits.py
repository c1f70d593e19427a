"""Finds the arrays of a program whose rows belong to several IPUs, and could be apart.

A pipeline that is cut out of a function marks the slices of a stacked parameter that its stages
read (`marks.ROWS`). What is computed element by element from such a parameter, such as its
momentum and its new value, can be cut in the same way.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax import lax

from lowering import marks
from lowering.jaxprs import ELEMENTWISE, Atom, Jaxpr, JaxprEqn, Literal, Var, name_stack, shape_of
from lowering.ops import ControlFlow, is_control_flow

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": lax.add,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
}
"""Reductions, and the operation that combines the results of two parts."""


@dc.dataclass(frozen=True)
class RowSplit:
    """The rows of an array, along axis 0, that belong to each of several IPUs.

    Attributes:
      bounds: the first row of each part, then the number of all rows.
      ipus: the IPU of each part.
    """

    bounds: tuple[int, ...]
    ipus: tuple[int, ...]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The first row of each part, and the one after its last."""
        return list(itertools.pairwise(self.bounds))

    @property
    def has_equal_parts(self) -> bool:
        """True if all parts have equally many rows."""
        return len({stop - start for start, stop in self.ranges}) == 1


def find_row_splits(
    jaxpr: Jaxpr, can_split: Callable[[RowSplit], bool]
) -> Callable[[Atom], RowSplit | None]:
    """Returns a function that gives the split of a variable of a jaxpr or of its loops, or None.

    Args:
      jaxpr: the program, whose jitted functions are opened.
      can_split: whether arrays may be split so.
    """
    classes = _SplitClasses()
    classes.add_equations(jaxpr)
    return classes.choose_splits(can_split)


class _SplitClasses:
    """The classes of variables that are split alike, or not at all."""

    def __init__(self) -> None:
        self._parents: dict[Var, Var] = {}
        self._marked: dict[Var, set[tuple[int, int, int]]] = {}

    def add_equations(self, jaxpr: Jaxpr) -> None:
        """Adds the variables of a jaxpr, and of the bodies of its loops and conditions."""
        for eqn in jaxpr.eqns:
            rows = read_marked_rows(eqn)
            if rows is not None and isinstance(eqn.invars[0], Var):
                self._marked.setdefault(eqn.invars[0], set()).add(rows)
            elif is_split_with_bodies(eqn):
                self._add_bodies(eqn)
            else:
                self._unite([a for a in (*eqn.invars, *eqn.outvars) if has_rows_of_result(eqn, a)])

    def choose_splits(
        self, can_split: Callable[[RowSplit], bool]
    ) -> Callable[[Atom], RowSplit | None]:
        """Returns the split of each variable, as `find_row_splits` does."""
        wanted: dict[Var, set[RowSplit | None]] = {}
        for var, rows in self._marked.items():
            wanted.setdefault(self._root(var), set()).add(_combine_rows(var, rows))
        splits = {
            root: split
            for root, choices in wanted.items()
            if len(choices) == 1 and (split := next(iter(choices))) is not None and can_split(split)
        }
        return lambda atom: None if isinstance(atom, Literal) else splits.get(self._root(atom))

    def _add_bodies(self, eqn: JaxprEqn) -> None:
        flow = ControlFlow.view_of_equation(eqn)
        operands = eqn.invars
        for number, body in enumerate(flow.bodies):
            self.add_equations(body.jaxpr)
            whole_operands = [*operands[flow.constants[number]], *operands[flow.carried]]
            for operand, var in zip(whole_operands, body.jaxpr.invars, strict=False):
                self._unite([operand, var])
            if not flow.is_condition(number):
                results = eqn.outvars[: len(eqn.outvars) - flow.num_stacked_results]
                for result, var in zip(results, body.jaxpr.outvars, strict=False):
                    self._unite([result, var])
        for result, operand in zip(eqn.outvars, operands[flow.carried], strict=False):
            self._unite([result, operand])

    def _unite(self, atoms: Sequence[Atom]) -> None:
        variables = [atom for atom in atoms if isinstance(atom, Var)]
        for var in variables[1:]:
            self._parents[self._root(var)] = self._root(variables[0])

    def _root(self, var: Var) -> Var:
        while (parent := self._parents.get(var, var)) is not var:
            var = parent
        return var


def read_marked_rows(eqn: JaxprEqn) -> tuple[int, int, int] | None:
    """Returns the first row of a marked slice, the one after its last, and its IPU; or None."""
    if eqn.primitive.name != "slice" or not has_unit_strides(eqn):
        return None
    ipu = marks.read_marks(name_stack(eqn)).rows_of_ipu
    starts, stops = eqn.params["start_indices"], eqn.params["limit_indices"]
    is_whole = (*starts[1:], *stops[1:]) == (*(0,) * len(starts[1:]), *eqn.invars[0].aval.shape[1:])
    return (starts[0], stops[0], ipu) if ipu is not None and is_whole else None


def has_unit_strides(eqn: JaxprEqn) -> bool:
    """Returns whether a slice has all elements between its first and its last."""
    return set(eqn.params["strides"] or ()) <= {1}


def is_split_with_bodies(eqn: JaxprEqn) -> bool:
    """Returns whether the operands of control flow may be split as the variables of its bodies."""
    is_task = eqn.primitive.name == "ipu_task"
    return is_control_flow(eqn) and not is_task and eqn.params.get("pipeline") is None


def has_rows_of_result(eqn: JaxprEqn, atom: Atom) -> bool:
    """Returns whether an operand (or result) has as many rows as the result, each for one of it."""
    name, shape, result = eqn.primitive.name, shape_of(atom.aval), shape_of(eqn.outvars[0].aval)
    if name == "broadcast_in_dim":
        maps_rows = eqn.params["broadcast_dimensions"][:1] == (0,)
        return atom is eqn.outvars[0] or (maps_rows and shape[0] == result[0])
    if name in REDUCTIONS:
        return 0 not in eqn.params["axes"]
    is_as_long = len(shape) == len(result) and shape[:1] == result[:1]
    return name in ELEMENTWISE and bool(result) and is_as_long


def _combine_rows(var: Var, marked: set[tuple[int, int, int]]) -> RowSplit | None:
    """Returns the split of a variable by its marked slices; None if they are not all its rows."""
    bounds, ipus = [0], list[int]()
    for start, stop, ipu in sorted(marked):
        if start != bounds[-1]:
            return None
        if ipus and ipus[-1] == ipu:
            bounds[-1] = stop
        else:
            bounds.append(stop)
            ipus.append(ipu)
    is_all = bounds[-1] == shape_of(var.aval)[0]
    return RowSplit(tuple(bounds), tuple(ipus)) if is_all and len(ipus) > 1 else None


def shapes_of_parts(shape: Sequence[int], split: RowSplit) -> Iterator[tuple[int, ...]]:
    """Yields the shape of each part of an array."""
    for start, stop in split.ranges:
        yield (stop - start, *shape[1:])
