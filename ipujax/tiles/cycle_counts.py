"""The modelled cycles of a block of a function."""

from __future__ import annotations

from types import TracebackType

import jax

from ipujax.operators import read_modelled_clock
from ipujax.tiles.tile_arrays import check


@check.guard
class cycle_count:
    """A `with` block that counts its modelled cycles: read `cycles` after it.

    They last from the first to the last step that is traced in the block, on the slowest tile, with
    steps on given tiles and planned steps alike. The block may be within a loop's body, whole.
    """

    def __enter__(self) -> cycle_count:
        self._start, self._cycles = read_modelled_clock(), None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._cycles = read_modelled_clock(self._start)

    @property
    def cycles(self) -> jax.Array:
        """uint32, 0-d: the cycles; 0 outside of `ipu.compile`.

        Raises:
          poplar_error: within the block.
        """
        if (cycles := getattr(self, "_cycles", None)) is None:
            raise check.value_error(
                "cycles of a cycle_count that has not ended", "read them after the block"
            )
        return cycles
