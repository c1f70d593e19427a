"""What the compiler is told from outside; it reads nothing else."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One compilation's settings.

    Attributes:
      num_ipus: IPUs of the device; replicas are what is left after the shards.
      name: the program's name in its text.
      catch_invalid: report an operation that makes a NaN from none.
      catch_division: report a division by zero.
      catch_overflow: report an operation that makes an infinity from finite numbers.
      step_slow_loops: leave loops to the host whose convolutions XLA runs slowly inside a loop.
      allow_recompute: let pipelines compute activations again instead of keeping them.
      io_tiles: I/O runs on tiles of its own, which Grouped pipelines make use of.
      minimum_remote_bytes: smaller values stay on their IPU, whatever storage was asked for.
      on_pass: called with each pass's name and the text after it, for dumps and notebooks.
    """

    num_ipus: int = 1
    name: str = "main"
    catch_invalid: bool = False
    catch_division: bool = False
    catch_overflow: bool = False
    step_slow_loops: bool = False
    allow_recompute: bool = False
    io_tiles: bool = False
    minimum_remote_bytes: int = 0
    on_pass: Callable[[str, str], None] | None = None

    @property
    def catches(self) -> bool:
        """Whether any floating-point fault is to be reported."""
        return self.catch_invalid or self.catch_division or self.catch_overflow
