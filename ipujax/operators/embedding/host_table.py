"""The table of a host embedding: gives rows to programs, and applies their gradients."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Generator, Sequence

import jax
import numpy as np

from ipujax.ground import FailedPreconditionError, IPUError, OperatorError
from ipujax.host import make_synthetic_array, use_synthetic_data_for
from ipujax.operators.embedding.embedding_optimizers import HostEmbeddingOptimizerSpec
from ipujax.system import SyntheticDataCategory, get_logger
from lowering import jaxpr

_registered: dict[str, HostTable] = {}
_registering = threading.Lock()
_named: weakref.WeakValueDictionary[str, HostTable] = weakref.WeakValueDictionary()


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
        """Returns a text that is equal in every process, for the texts of programs."""
        return f"<HostTable {self.name}>"

    @property
    def columns(self) -> int:
        """The length of a row."""
        return self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of the table, of looked-up rows and of their gradients."""
        return self.values.dtype

    @property
    def is_trained(self) -> bool:
        """True if gradients change the table; a rate of 0 sends none."""
        return self.spec is not None and self.spec.get_learning_rate() != 0

    # --- who may use it -------------------------------------------------------------------------

    def take_name(self) -> None:
        """Makes this the table of its name, and warns of another one that is still there.

        Raises:
          FailedPreconditionError: one of its name is registered.
        """
        with _registering:
            self._check_not_registered()
            if self.name in _named:
                get_logger().warning(
                    f"there is a host embedding named `{self.name}` already, and names identify "
                    "embeddings: of those of one name only one can be registered at a time"
                )
            _named[self.name] = self

    def register_table(self) -> None:
        """Lets programs use the table.

        Raises:
          FailedPreconditionError: one of its name is registered.
        """
        with _registering:
            self._check_not_registered()
            _registered[self.name] = self
        self._is_read = False

    def _check_not_registered(self) -> None:
        if self.name in _registered:
            raise FailedPreconditionError(
                f"a host embedding named `{self.name}` is registered already",
                fix="leave its `with` block first, or give each embedding its own name",
            )

    def deregister_table(self) -> None:
        """Waits for the programs that use the table; later ones may not."""
        try:
            jax.effects_barrier()
        finally:
            with _registering:
                del _registered[self.name]

    def check_registered(self) -> None:
        """Raises FailedPreconditionError if no program may use the table now."""
        if _registered.get(self.name) is not self and not _is_embedding_data_synthetic():
            raise FailedPreconditionError(
                f"failed precondition: a program looks up host embedding `{self.name}`, which is "
                "not registered",
                fix="run the program inside `with embedding.register():`",
            )

    def warn_if_idle(self) -> None:
        """Logs a warning, once, if the table was looked up to be trained but gets no gradients."""
        if self._is_read and self.is_trained and not (self._may_learn or self._has_warned):
            self._has_warned = True
            get_logger().warning(
                f"host embedding `{self.name}` was looked up and has an optimizer, but learns "
                "nothing: no lookup has its handle; differentiate with respect to "
                "`embedding.handle`, given as lookup(..., handle=handle), or leave optimizer_spec "
                "out for a table that is only read"
            )

    # --- what programs do -----------------------------------------------------------------------

    def add_lookup_site(self, user_line: str, has_handle: bool) -> int:
        """Adds a lookup and returns its number.

        Args:
          user_line: the user's line.
          has_handle: whether gradients may come for it.
        """
        with self._changing:
            self._lines.append(user_line)
            self._may_learn |= has_handle
            return len(self._lines)

    def rows(self, indices: np.ndarray, site: int) -> np.ndarray:
        """Returns the rows at indices of any shape, `[*indices.shape, columns]`, for a lookup."""
        if _is_embedding_data_synthetic():
            shape = (*indices.shape, self.columns)
            return make_synthetic_array(jax.ShapeDtypeStruct(shape, self.dtype))
        with self._record_failure():
            self.check_registered()
            self._check_indices(indices, self._lines[site - 1])
        with self._changing:
            self._is_read = True
            return self.values[indices]

    def send(self, indices: np.ndarray, gradients: np.ndarray) -> None:
        """Applies or collects the gradients of rows; those of equal indices are added."""
        if _is_embedding_data_synthetic() or self.spec is None:
            return
        with self._record_failure():
            self.check_registered()
        batch = indices.reshape(-1), gradients.reshape(-1, self.columns)
        with self._changing:
            if self.spec.get_accumulation_factor() == 1:
                self._apply_gradient_descent([batch], self.spec.get_learning_rate())
                return
            # XLA's own buffers, which it will use again.
            self._waiting.append((batch[0].copy(), batch[1].copy()))
            if len(self._waiting) == self.spec.get_accumulation_factor():
                self._apply_gradient_descent(self._waiting, self.spec.get_learning_rate())
                self._waiting = []

    def copy_values(self) -> np.ndarray:
        """Returns a copy of the table, after all programs that have been started."""
        jax.effects_barrier()
        with self._changing:
            return self.values.copy()

    @contextlib.contextmanager
    def _record_failure(self) -> Generator[None]:
        try:
            yield
        except IPUError as error:
            self.failure = error
            raise

    def _check_indices(self, indices: np.ndarray, user_line: str) -> None:
        count = len(self.values)
        if indices.size and not (indices.min() >= 0 and indices.max() < count):
            bad = indices[(indices < 0) | (indices >= count)].flat[0]
            raise OperatorError(
                f"index {bad} is outside of host embedding `{self.name}`, which has {count} rows",
                where=user_line,
                fix="give indices of rows, or lookup(..., clip_indices=True) for the nearest row",
            )

    def _apply_gradient_descent(
        self, batches: Sequence[tuple[np.ndarray, np.ndarray]], rate: float
    ) -> None:
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


def _is_embedding_data_synthetic() -> bool:
    return use_synthetic_data_for(SyntheticDataCategory.HostEmbedding)
