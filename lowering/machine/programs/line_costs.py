"""The user's lines that values and kernels of a program come from."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lowering import ir, marks
from lowering.ground import ValueId
from lowering.jaxprs import (
    CallPath,
    JaxprEqn,
    Literal,
    call_path,
    name_stack,
    user_line,
)
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.totals import Total
from lowering.machine.programs.program_directions import ProgramDirections
from lowering.ops import word_of_equation


def _makers_of_results(kernel: ir.Kernel) -> list[JaxprEqn | None]:
    """Returns the equation that makes each result of a kernel; None if it is an operand."""
    jaxpr = kernel.jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    return [None if isinstance(atom, Literal) else makers.get(atom) for atom in jaxpr.outvars]


class MoveOrigin(NamedTuple):
    """The user's line, call path and direction that a move of data is attributed to.

    Attributes:
      origin: the user's `file:line`, or "".
      call_path: the user's frames, outermost first.
      direction: the direction of the pass that it moves for.
    """

    origin: str = ""
    call_path: CallPath = ()
    direction: Direction | None = None

    def build_total(self, title: str, bytes_: float, cycles: float = 0.0) -> Total:
        """Builds the total of one run of a move with this origin."""
        origin, path, direction = self
        total = Total(title, origin=origin, call_path=path, direction=direction)
        total.runs, total.bytes, total.cycles = 1, bytes_, cycles
        return total


class ValueMakers:
    """The equations that make the values of a program; others have no line.

    Args:
      program: whose values they are.
    """

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._makers: dict[ValueId, JaxprEqn] = {}
        self._move_origins: dict[object, MoveOrigin] = {}
        for node in ir.walk_nodes(program.body):
            if isinstance(node, ir.Execute):
                for eqn, value in zip(_makers_of_results(node.kernel), node.writes, strict=True):
                    if eqn is not None:
                        self._makers[value] = eqn
            elif isinstance(node, ir.Store) and node.value in self._makers:
                self._makers[node.kept] = self._makers[node.value]

    @functools.cached_property
    def directions(self) -> ProgramDirections:
        """The directions of all parts of the program."""
        return ProgramDirections(self._program)

    def line_of_first(self, values: Iterable[ValueId]) -> str:
        """Returns the line of the first of these values that has one, or ""."""
        eqn = self._first_maker(values)
        return user_line(eqn) if eqn is not None else ""

    def find_move_origin(
        self, values: Sequence[ValueId], node: ir.Node | None = None, origin: str | None = None
    ) -> MoveOrigin:
        """Returns the origin of the first of these values that has a maker.

        Args:
          values: the values that move together.
          node: the node that moves them, if there is one.
          origin: the user's line, if it is not that of the maker.
        """
        key = tuple(values), id(node), origin
        if key not in self._move_origins:
            direction = self.directions.direction_of_values(values, node)
            if origin is None:
                line, path = self.line_of_first(values), call_path(self._first_maker(values))
            else:
                line, path = origin, (origin,) if origin else ()
            self._move_origins[key] = MoveOrigin(line, path, direction)
        return self._move_origins[key]

    def describe_maker(self, value: ValueId) -> tuple[str, str]:
        """Returns the word for the operation that makes a value, and its scopes; "" for others."""
        eqn = self._first_maker((value,))
        if eqn is None:
            return "", ""
        return word_of_equation(eqn), marks.user_scopes(name_stack(eqn))

    def equation_that_makes(self, value: ValueId) -> JaxprEqn | None:
        """Returns the equation that makes a value; None if it is an operand, or no kernel's."""
        return self._makers.get(value)

    def _first_maker(self, values: Iterable[ValueId]) -> JaxprEqn | None:
        return next((self._makers[value] for value in values if value in self._makers), None)
