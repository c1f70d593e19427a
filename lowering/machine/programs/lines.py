"""Which of the user's lines are behind the values and kernels of a program."""

from __future__ import annotations

from collections.abc import Iterable

from lowering import marks
from lowering.ir.program import Execute, Program, Store
from lowering.ir.tree import walk
from lowering.jaxpr import Jaxpr, Literal, name_stack, sub_jaxprs, user_line
from lowering.units import ValueId


def lines_of(jaxpr: Jaxpr) -> tuple[tuple[str, str], ...]:
    """Of every equation, with its scope, inner ones after the one that they belong to."""
    found: list[tuple[str, str]] = []
    for eqn in jaxpr.eqns:
        found.append((user_line(eqn), marks.scope(name_stack(eqn))))
        for inner in sub_jaxprs(eqn):
            found.extend(lines_of(inner))
    return tuple(found)


class Makers:
    """The lines that make values; what a kernel passes on or a loop carries has none.

    Args:
      program: whose values they are.
    """

    def __init__(self, program: Program) -> None:
        self._lines: dict[ValueId, str] = {}
        for node in walk(program.body):
            if isinstance(node, Execute):
                jaxpr = node.kernel.jaxpr.jaxpr
                made = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
                for atom, value in zip(jaxpr.outvars, node.writes, strict=True):
                    if not isinstance(atom, Literal) and atom in made:
                        self._lines[value] = user_line(made[atom])
            elif isinstance(node, Store):
                self._lines[node.kept] = self.line([node.value])

    def line(self, values: Iterable[ValueId]) -> str:
        """Of the first of these values that has one, or ""."""
        return next((self._lines[value] for value in values if value in self._lines), "")
