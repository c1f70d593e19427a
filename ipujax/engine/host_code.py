"""What a program runs on the host that may fail there: tables, callbacks, compiled functions.

XLA says neither which operation failed nor where it is. So these programs are waited for, and what
XLA raises becomes an error of ours, with XLA's as its cause.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax

from ipujax.engine.callbacks import Watch
from ipujax.operators.custom.error import failure
from lowering import ir, jaxpr, ops


@dc.dataclass(frozen=True)
class HostCode:
    """What one program runs on the host.

    Attributes:
      program: its name.
      tables: those of the host embeddings that it uses.
      custom: its custom operations.
      watch: on its callbacks.
    """

    program: str
    tables: tuple[Any, ...]
    custom: tuple[ops.UserOp, ...]
    watch: Watch

    @classmethod
    def of(cls, program: ir.Program, watch: Watch) -> HostCode:
        """Looks through a program."""
        nodes = [n for n in ir.walk(program.body) if isinstance(n, (ir.Execute, ir.HostCall))]
        bodies = [node.kernel.jaxpr.jaxpr for node in nodes]
        tables = dict.fromkeys(t for body in bodies for t in ops.tables_of(body))
        custom = tuple(op for body in bodies for op in ops.user_ops_of(body))
        return cls(program.name, tuple(tables), custom, watch)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.tables or self.custom) or self.watch.is_needed

    def run(
        self, machine: Callable[[list[Any]], list[jax.Array]], flat: list[Any]
    ) -> list[jax.Array]:
        """The program's results.

        Args:
          machine: runs the program.
          flat: its arguments.

        Raises:
          FailedPreconditionError: (a `RuntimeError`) a table that is not registered.
          OperatorError: (a `ValueError`) an index outside of a table.
          CustomOpError: (a `ValueError`) the program failed, and has custom operations.
          CallbackError: (a `RuntimeError`) a callback of the program raised.
        """
        if not self:
            return machine(flat)
        for table in self.tables:
            table.check_registered()
        self.watch.begin()
        try:
            results = jax.block_until_ready(machine(flat))
            if self.watch.is_needed:
                jax.effects_barrier()  # nothing else waits for those without results
            return results
        except jax.errors.JaxRuntimeError as wrong:
            jaxpr.forget_effects()
            ours = self._explained(wrong)
            if ours is None:
                raise
            raise ours from ours.__cause__ or wrong

    def _explained(self, wrong: Exception) -> BaseException | None:
        for table in self.tables:
            # XLA has nothing but the text of what the table raised.
            if table.failure is not None and str(table.failure) in str(wrong):
                ours, table.failure = table.failure, None
                return ours.with_traceback(None)
        raised = self.watch.failure(self.program, wrong)
        if raised is not None or not self.custom:
            return raised
        return failure(f"`{self.program}`, which calls custom operations,", wrong, self.custom)
