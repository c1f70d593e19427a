"""The table of a host embedding, as programs see it: rows out, gradients in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.errors import FailedPreconditionError, IPUError, OperatorError
from ipujax.host.synthetic import synthetic_array
from ipujax.operators.embedding.optimizers import HostEmbeddingOptimizerSpec
from ipujax.system.log import get_logger
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import jaxpr

_registered: dict[str, HostTable] = {}
_registering = threading.Lock()


class HostTable:
    """A table in the host's memory, and the gradients that have come for it.

    Attributes:
      name: unique among the tables that are registered.
      spec: what applies gradients; None if nothing does.
      values: `[rows, columns]`, changed in place.
      failure: what ended the last program that failed here; XLA keeps no more than its text.
    """

    def __init__(self, name: str, values: np.ndarray, spec: HostEmbeddingOptimizerSpec | None):
        self.name, self.values, self.spec = name, values, spec
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._changing = threading.Lock()
        self.failure: IPUError | None = None
        self._lines: list[str] = []  # of the lookups, by their sites
        self._may_learn = self._has_warned = False
        self._is_read = False  # since it was registered

    def __repr__(self) -> str:
        """The same in every process, for the texts of programs."""
        return f"<HostTable {self.name}>"

    @property
    def columns(self) -> int:
        """The length of a row."""
        return self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the table, of looked-up rows and of their gradients."""
        return self.values.dtype

    @property
    def is_trained(self) -> bool:
        """Whether gradients change the table (none are sent for a rate of 0, as originally)."""
        return self.spec is not None and self.spec.get_learning_rate() != 0

    # --- who may use it -------------------------------------------------------------------------

    def register(self) -> None:
        """Lets programs use the table.

        Raises:
          FailedPreconditionError: one of its name is registered.
        """
        with _registering:
            if self.name in _registered:
                raise FailedPreconditionError(
                    f"a host embedding named `{self.name}` is registered already",
                    fix="leave its `with` block first, or give each embedding its own name",
                )
            _registered[self.name] = self
        self._is_read = False

    def deregister(self) -> None:
        """Waits for the programs that use the table; later ones may not."""
        try:
            jax.effects_barrier()
        finally:
            with _registering:
                del _registered[self.name]

    def check_registered(self) -> None:
        """Raises FailedPreconditionError if no program may use the table now."""
        if _registered.get(self.name) is not self and not _is_synthetic():
            raise FailedPreconditionError(
                f"failed precondition: a program looks up host embedding `{self.name}`, which is "
                "not registered",
                fix="run the program inside `with embedding.register():`",
            )

    def warn_if_idle(self) -> None:
        """Warns, once, if the table is to be trained and is looked up, but can get no gradients."""
        if self._is_read and self.is_trained and not (self._may_learn or self._has_warned):
            self._has_warned = True
            get_logger().warning(
                f"host embedding `{self.name}` was looked up and has an optimizer, but learns "
                "nothing: no lookup has its handle; differentiate with respect to "
                "`embedding.handle`, given as lookup(..., handle=handle), or leave optimizer_spec "
                "out for a table that is only read"
            )

    # --- what programs do -----------------------------------------------------------------------

    def site(self, where: str, has_handle: bool) -> int:
        """The number of a new lookup.

        Args:
          where: the user's line.
          has_handle: whether gradients may come for it.
        """
        with self._changing:
            self._lines.append(where)
            self._may_learn |= has_handle
            return len(self._lines)

    def rows(self, indices: np.ndarray, site: int) -> np.ndarray:
        """The rows at indices of any shape, `[*indices.shape, columns]`, for one lookup."""
        if _is_synthetic():
            shape = (*indices.shape, self.columns)
            return synthetic_array(jax.ShapeDtypeStruct(shape, self.dtype))
        with self._failing():
            self.check_registered()
            self._check_inside(indices, self._lines[site - 1])
        with self._changing:
            self._is_read = True
            return self.values[indices]

    def send(self, indices: np.ndarray, gradients: np.ndarray) -> None:
        """Takes gradients of rows, `[*indices.shape, columns]`; those of equal indices add up."""
        if _is_synthetic() or self.spec is None:
            return
        with self._failing():
            self.check_registered()
        batch = indices.reshape(-1), gradients.reshape(-1, self.columns)
        with self._changing:
            if self.spec.get_accumulation_factor() == 1:
                self._descend([batch], self.spec.get_learning_rate())
                return
            # XLA's own buffers, which it will use again.
            self._waiting.append((batch[0].copy(), batch[1].copy()))
            if len(self._waiting) == self.spec.get_accumulation_factor():
                self._descend(self._waiting, self.spec.get_learning_rate())
                self._waiting = []

    def snapshot(self) -> np.ndarray:
        """A copy of the table, after all programs that have been started."""
        jax.effects_barrier()
        with self._changing:
            return self.values.copy()

    @contextlib.contextmanager
    def _failing(self) -> Generator[None]:
        try:
            yield
        except IPUError as error:
            self.failure = error
            raise

    def _check_inside(self, indices: np.ndarray, where: str) -> None:
        count = len(self.values)
        if indices.size and not (indices.min() >= 0 and indices.max() < count):
            bad = indices[(indices < 0) | (indices >= count)].flat[0]
            raise OperatorError(
                f"index {bad} is outside of host embedding `{self.name}`, which has {count} rows",
                where=where,
                fix="give indices of rows, or lookup(..., clip_indices=True) for the nearest row",
            )

    def _descend(self, batches: Sequence[tuple[np.ndarray, np.ndarray]], rate: float) -> None:
        """Subtracts `rate` times the sum of each row's gradients, in at least float32."""
        indices = np.concatenate([part for part, _ in batches])
        if not len(indices):
            return
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        wide = np.promote_types(self.dtype, np.float32)
        gradients = np.concatenate([part.astype(wide, copy=False) for _, part in batches])
        total = np.add.reduceat(gradients[order], starts, axis=0)
        rows = ordered[starts]
        self.values[rows] = (self.values[rows] - wide.type(rate) * total).astype(self.dtype)


jaxpr.hold_weakly(HostTable)


def _is_synthetic() -> bool:
    return use_synthetic_data_for(SyntheticDataCategory.HostEmbedding)
