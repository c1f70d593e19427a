"""The host code of a program that may fail: embedding tables, callbacks, custom operations.

XLA does not say which operation failed or where. So these programs are waited for, and what
XLA raises becomes an error of ipujax, with XLA's error as its cause.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax

from ipujax.engine.host_callbacks import Watch
from ipujax.operators import custom_op_error
from lowering import ir, jaxpr, ops


@dc.dataclass(frozen=True)
class HostCode:
    """The tables, callbacks and custom operations that one program runs on the host.

    Attributes:
      program: its name.
      tables: the tables of the host embeddings that it uses.
      custom: its custom operations.
      watch: records what its callbacks raise.
    """

    program: str
    tables: tuple[Any, ...]
    custom: tuple[ops.UserOp, ...]
    watch: Watch

    @classmethod
    def collect_host_code(cls, program: ir.Program, watch: Watch) -> HostCode:
        """Collects the host code of a program."""
        nodes = [n for n in ir.walk_nodes(program.body) if isinstance(n, (ir.Execute, ir.HostCall))]
        bodies = [node.kernel.jaxpr.jaxpr for node in nodes]
        tables = dict.fromkeys(t for body in bodies for t in ops.tables_of(body))
        custom = tuple(op for body in bodies for op in ops.user_ops_of(body))
        return cls(program.name, tuple(tables), custom, watch)

    def __bool__(self) -> bool:
        """Returns whether the program runs any host code that may fail."""
        return bool(self.tables or self.custom) or self.watch.is_needed

    def run_and_explain_errors(
        self, machine: Callable[[list[Any]], list[jax.Array]], flat: list[Any]
    ) -> list[jax.Array]:
        """Runs the program, and turns XLA's errors in its host code into errors with a cause.

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
        self.watch.clear_errors()
        try:
            results = jax.block_until_ready(machine(flat))
            if self.watch.is_needed:
                jax.effects_barrier()  # nothing else waits for those without results
            return results
        except jax.errors.JaxRuntimeError as xla_error:
            jaxpr.forget_effects()
            ours = self._explain_error(xla_error)
            if ours is None:
                raise
            raise ours from ours.__cause__ or xla_error

    def _explain_error(self, xla_error: Exception) -> BaseException | None:
        for table in self.tables:
            # XLA has nothing but the text of what the table raised.
            if table.failure is not None and str(table.failure) in str(xla_error):
                ours, table.failure = table.failure, None
                return ours.with_traceback(None)
        raised = self.watch.explain_xla_error(self.program, xla_error)
        if raised is not None or not self.custom:
            return raised
        return custom_op_error(
            f"`{self.program}`, which calls custom operations,", xla_error, self.custom
        )
