"""Finds what the forward pass of a differentiated function keeps for its backward pass."""

from __future__ import annotations

from ipujax.report.advice.index import ProgramIndex
from lowering import ir, jaxpr, marks, size_in_bytes

_RECOMPUTED = "rematted_computation"  # jax.checkpoint's entry in name stacks


class Derivatives:
    """The forward values that backward equations read, found by the equations' name stacks.

    Attributes:
      kept_bytes: bytes of the values that forward equations make and backward ones read; 0
        without derivatives.
      recomputes: whether `jax.checkpoint` is used.
    """

    def __init__(self, index: ProgramIndex) -> None:
        self._made: set[object] = set()
        self._kept: dict[object, int] = {}
        self.recomputes = False
        for node in index.nodes_of_kind(ir.Execute):
            kernel = node.kernel.jaxpr.jaxpr
            names: dict[object, object] = dict(zip(kernel.invars, node.reads, strict=True))
            for atom, value in zip(kernel.outvars, node.writes, strict=True):
                if not isinstance(atom, jaxpr.Literal):
                    names[atom] = value
            self._scan_equations(kernel, "", names)

    @property
    def kept_bytes(self) -> int:
        """The bytes of the forward pass's values that the backward pass reads."""
        return sum(self._kept.values())

    def _scan_equations(
        self, body: jaxpr.Jaxpr, enclosing: str, value_of_variable: dict[object, object]
    ) -> None:
        """Collects kept values of a body; `value_of_variable` maps its variables."""
        for eqn in body.eqns:
            stack = marks.join_name_stacks(enclosing, jaxpr.name_stack(eqn))
            self.recomputes |= _RECOMPUTED in stack
            if not marks.read_marks(stack).backward:
                self._made.update(value_of_variable.get(var, var) for var in eqn.outvars)
            else:
                read_variables = (
                    atom for atom in eqn.invars if not isinstance(atom, jaxpr.Literal)
                )
                for var in read_variables:
                    name = value_of_variable.get(var, var)
                    if name in self._made:
                        self._kept[name] = size_in_bytes(var.aval)
            for sub_jaxpr in jaxpr.sub_jaxprs(eqn):
                self._scan_equations(sub_jaxpr, stack, {})
