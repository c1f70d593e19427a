"""What rules find in a profile: data, which can be read without the rules and what they need."""

from __future__ import annotations

import dataclasses as dc

from ipujax.report.checks import check
from lowering import machine


@check.guard
@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Something that takes time.

    Attributes:
      title: what it is.
      share: of the IPU-cycles of a call, `num_ipus * cycles`.
      cycles: of all IPUs together.
      detail: why it takes that long.
      remedy: what would help.
      origin: the user's `file:line`, or "".
      ipu: the one that it concerns; None for several.
      name: of the steps that it is about, as they are called in the trace; "" if it is about none.
    """

    title: str
    share: float
    cycles: int
    detail: str
    remedy: str
    origin: str = ""
    ipu: int | None = None
    name: str = ""


@check.guard
@dc.dataclass(frozen=True, slots=True)
class Advice:
    """Something to change.

    Attributes:
      rule: a word for it, the same whatever the program.
      text: what to do.
      about_bytes: what it takes off the IPU with the fullest tile.
      enough: whether the program fits after it.
      fullest_bytes: what the fullest tile holds after it; 0 for what only says how far others come.
    """

    rule: str
    text: str
    about_bytes: int
    enough: bool = False
    fullest_bytes: int = 0


def need_bytes(memory: machine.Memory) -> list[int]:
    """For each IPU what its tiles hold too much, if it goes off all of them alike."""
    fullest = memory.tile_peak_bytes.max(axis=1)
    tiles = memory.tile_peak_bytes.shape[1]
    return [max(0, bytes_ - memory.limit) * tiles for bytes_ in fullest.tolist()]
