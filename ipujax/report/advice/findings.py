"""The costs and the advice that rules find in a profile, as data without the rules."""

from __future__ import annotations

import dataclasses as dc

from ipujax.report.report_checks import check
from lowering import machine


@check.guard
@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cost in time of a program's call, with its cause and remedy.

    Attributes:
      title: a name for the cost.
      share: the share in the IPU-cycles of a call, `num_ipus * cycles`.
      cycles: the cycles that it takes, of all IPUs together.
      detail: why it takes that long.
      remedy: what would reduce it.
      origin: the user's `file:line`, or "".
      ipu: the IPU that it concerns; None for several.
      name: the name of its steps in the trace; "" if it is not about single steps.
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
    """A change to a program that would reduce its memory.

    Attributes:
      rule: a word for the change, the same for every program.
      text: an instruction to the user.
      about_bytes: bytes that it frees on the IPU with the fullest tile.
      enough: whether the program fits after it.
      fullest_bytes: bytes on the fullest tile after it; 0 for a summary of other changes.
    """

    rule: str
    text: str
    about_bytes: int
    enough: bool = False
    fullest_bytes: int = 0


def bytes_to_free(memory: machine.Memory) -> list[int]:
    """Returns for each IPU the bytes to free, if every tile frees as much as its fullest must."""
    fullest = memory.tile_peak_bytes.max(axis=1)
    tiles = memory.tile_peak_bytes.shape[1]
    return [max(0, bytes_ - memory.limit) * tiles for bytes_ in fullest.tolist()]
