"""What the forward pass of a differentiated function keeps for its backward pass."""

from __future__ import annotations

from ipujax.report.advice.index import Index
from lowering import ir, jaxpr, marks, size_in_bytes

_RECOMPUTED = "rematted_computation"  # what jax.checkpoint writes into name stacks


class Derivatives:
    """Read off a program's equations: backward ones are marked in their name stacks.

    Attributes:
      kept_bytes: of what equations of the forward pass make and backward ones read; 0 without
        derivatives.
      recomputes: whether `jax.checkpoint` is at work.
    """

    def __init__(self, index: Index) -> None:
        self._made: set[object] = set()
        self._kept: dict[object, int] = {}
        self.recomputes = False
        for node in index.of(ir.Execute):
            kernel = node.kernel.jaxpr.jaxpr
            names: dict[object, object] = dict(zip(kernel.invars, node.reads, strict=True))
            for atom, value in zip(kernel.outvars, node.writes, strict=True):
                if not isinstance(atom, jaxpr.Literal):
                    names[atom] = value
            self._look(kernel, "", names)

    @property
    def kept_bytes(self) -> int:
        """What derivatives keep of the forward pass."""
        return sum(self._kept.values())

    def _look(self, body: jaxpr.Jaxpr, enclosing: str, names: dict[object, object]) -> None:
        """Looks at a body, where `names` says which of its variables are values of the program."""
        for eqn in body.eqns:
            stack = marks.joined(enclosing, jaxpr.name_stack(eqn))
            self.recomputes |= _RECOMPUTED in stack
            if not marks.read(stack).backward:
                self._made.update(names.get(var, var) for var in eqn.outvars)
            else:
                read = (atom for atom in eqn.invars if not isinstance(atom, jaxpr.Literal))
                for var in read:
                    name = names.get(var, var)
                    if name in self._made:
                        self._kept[name] = size_in_bytes(var.aval)
            for inner in jaxpr.sub_jaxprs(eqn):
                self._look(inner, stack, {})
