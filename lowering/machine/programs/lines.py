"""Which of the user's lines are behind the values and kernels of a program."""

from __future__ import annotations

from collections.abc import Iterable

from lowering import ir, marks
from lowering.jaxpr import Jaxpr, JaxprEqn, Literal, name_stack, sub_jaxprs, user_line
from lowering.units import ValueId


def lines_of(jaxpr: Jaxpr) -> tuple[tuple[str, str], ...]:
    """Of every equation, with its scope, inner ones after the one that they belong to."""
    lines: list[tuple[str, str]] = []
    for eqn in jaxpr.eqns:
        lines.append((user_line(eqn), marks.scopes(name_stack(eqn))))
        for inner in sub_jaxprs(eqn):
            lines.extend(lines_of(inner))
    return tuple(lines)


def makers_of(kernel: ir.Kernel) -> list[JaxprEqn | None]:
    """The equation that makes each result of a kernel; None for what it passes on."""
    jaxpr = kernel.jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    return [None if isinstance(atom, Literal) else makers.get(atom) for atom in jaxpr.outvars]


class Makers:
    """The lines that make values; what a kernel passes on or a loop carries has none.

    Args:
      program: whose values they are.
    """

    def __init__(self, program: ir.Program) -> None:
        self._lines: dict[ValueId, str] = {}
        for node in ir.walk(program.body):
            if isinstance(node, ir.Execute):
                for eqn, value in zip(makers_of(node.kernel), node.writes, strict=True):
                    if eqn is not None:
                        self._lines[value] = user_line(eqn)
            elif isinstance(node, ir.Store):
                self._lines[node.kept] = self.line([node.value])

    def line(self, values: Iterable[ValueId]) -> str:
        """Of the first of these values that has one, or ""."""
        return next((self._lines[value] for value in values if value in self._lines), "")
