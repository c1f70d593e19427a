"""Which of the user's lines are behind the values and kernels of a program."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lowering import ir, marks
from lowering.call_paths import CallPath, call_path
from lowering.jaxpr import Jaxpr, JaxprEqn, Literal, name_stack, sub_jaxprs, user_line
from lowering.machine.kernels.directions import Direction
from lowering.machine.kernels.totals import Total
from lowering.machine.programs.directions import ProgramDirections
from lowering.units import ValueId


def lines_of(jaxpr: Jaxpr) -> tuple[tuple[str, CallPath, str], ...]:
    """Of every equation, with path and scope, inner ones after the one that they belong to."""
    lines: list[tuple[str, CallPath, str]] = []
    for eqn in jaxpr.eqns:
        lines.append((user_line(eqn), call_path(eqn), marks.scopes(name_stack(eqn))))
        for inner in sub_jaxprs(eqn):
            lines.extend(lines_of(inner))
    return tuple(lines)


def makers_of(kernel: ir.Kernel) -> list[JaxprEqn | None]:
    """The equation that makes each result of a kernel; None for what it passes on."""
    jaxpr = kernel.jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    return [None if isinstance(atom, Literal) else makers.get(atom) for atom in jaxpr.outvars]


class Behind(NamedTuple):
    """What is behind data that moves.

    Attributes:
      origin: the user's `file:line`, or "".
      call_path: the user's frames, outermost first.
      direction: of the pass that it moves for.
    """

    origin: str = ""
    call_path: CallPath = ()
    direction: Direction | None = None

    def total(self, title: str, bytes_: float, cycles: float = 0.0) -> Total:
        """One run of an operation that it is behind."""
        origin, path, direction = self
        total = Total(title, origin=origin, call_path=path, direction=direction)
        total.runs, total.bytes, total.cycles = 1, bytes_, cycles
        return total


class Makers:
    """What is behind values; what a kernel passes on or a loop carries has no line.

    Args:
      program: whose values they are.
    """

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._makers: dict[ValueId, JaxprEqn] = {}
        for node in ir.walk(program.body):
            if isinstance(node, ir.Execute):
                for eqn, value in zip(makers_of(node.kernel), node.writes, strict=True):
                    if eqn is not None:
                        self._makers[value] = eqn
            elif isinstance(node, ir.Store) and node.value in self._makers:
                self._makers[node.kept] = self._makers[node.value]

    @functools.cached_property
    def directions(self) -> ProgramDirections:
        """Which way all parts of the program go."""
        return ProgramDirections(self._program)

    def line(self, values: Iterable[ValueId]) -> str:
        """Of the first of these values that has one, or ""."""
        eqn = self._maker(values)
        return user_line(eqn) if eqn is not None else ""

    def behind(
        self, values: Sequence[ValueId], node: ir.Node | None = None, origin: str | None = None
    ) -> Behind:
        """What is behind the first of these values that something makes.

        Args:
          values: they move together.
          node: what moves them, if that is a node.
          origin: the user's line, if it is not that of what makes them.
        """
        direction = self.directions.values(values, node)
        if origin is not None:
            return Behind(origin, (origin,) if origin else (), direction)
        return Behind(self.line(values), call_path(self._maker(values)), direction)

    def _maker(self, values: Iterable[ValueId]) -> JaxprEqn | None:
        return next((self._makers[value] for value in values if value in self._makers), None)
